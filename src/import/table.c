/* The op table: one row per ONNX op. Sorted by name, then domain, then version. */
#include "import/rules.h"

#include <string.h>

enum { NEWEST = ESP_ONNX_MAX_OPSET };

static const esp_i_onnx_op_t ops[] = {
    {"", "Abs", 6, NEWEST, esp_i_rule_unary, ESP_ELT_ABS, "eltwise"},
    {"", "Add", 7, NEWEST, esp_i_rule_binary, ESP_ELT_ADD, "eltwise"},
    {"", "And", 7, NEWEST, esp_i_rule_compare, ESP_ELT_AND, "eltwise"},
    {"", "AveragePool", 7, NEWEST, esp_i_rule_pool, 0, "pool"},
    {"", "BatchNormalization", 7, NEWEST, esp_i_rule_batchnorm, 0,
     "bn_stats, bn_norm, update; or eltwise"},
    {"", "Bernoulli", 15, NEWEST, esp_i_rule_bernoulli, 0, "random, eltwise"},
    {"", "Cast", 6, NEWEST, esp_i_rule_cast, 0, "cast"},
    {"", "CastLike", 15, NEWEST, esp_i_rule_cast_like, 0, "cast"},
    {"", "Ceil", 6, NEWEST, esp_i_rule_unary, ESP_ELT_CEIL, "eltwise"},
    {"", "Celu", 12, NEWEST, esp_i_rule_celu, 0, "eltwise"},
    {"", "Clip", 6, NEWEST, esp_i_rule_clip, 0, "eltwise"},
    {"", "Concat", 4, NEWEST, esp_i_rule_concat, 0, "concat"},
    {"", "Constant", 1, NEWEST, esp_i_rule_constant, 0, "a constant"},
    {"", "ConstantOfShape", 9, NEWEST, esp_i_rule_constant_of_shape, 0, "fill; or a parameter"},
    {"", "Conv", 1, NEWEST, esp_i_rule_conv, 0, "conv, eltwise"},
    {"", "ConvTranspose", 1, NEWEST, esp_i_rule_conv_transpose, 0, "conv_dx, eltwise"},
    {"", "Cos", 7, NEWEST, esp_i_rule_unary, ESP_ELT_COS, "eltwise"},
    {"", "CumSum", 11, NEWEST, esp_i_rule_cumsum, 0, "contract"},
    {"", "DepthToSpace", 1, NEWEST, esp_i_rule_depth_space, 0, "reshape, transpose"},
    {"", "Div", 7, NEWEST, esp_i_rule_binary, ESP_ELT_DIV, "eltwise"},
    {"", "Dropout", 7, NEWEST, esp_i_rule_dropout, 0, "dropout"},
    {"", "Einsum", 12, NEWEST, esp_i_rule_einsum, 0, "contract, reduce, transpose"},
    {"", "Elu", 6, NEWEST, esp_i_rule_alpha, ESP_ELT_ELU, "eltwise"},
    {"", "Equal", 7, NEWEST, esp_i_rule_compare, ESP_ELT_EQUAL, "eltwise"},
    {"", "Erf", 9, NEWEST, esp_i_rule_unary, ESP_ELT_ERF, "eltwise"},
    {"", "Exp", 6, NEWEST, esp_i_rule_unary, ESP_ELT_EXP, "eltwise"},
    {"", "Expand", 8, NEWEST, esp_i_rule_expand, 0, "reshape, expand"},
    {"", "EyeLike", 9, NEWEST, esp_i_rule_eye_like, 0, "range, eltwise"},
    {"", "Flatten", 1, NEWEST, esp_i_rule_flatten, 0, "reshape"},
    {"", "Floor", 6, NEWEST, esp_i_rule_unary, ESP_ELT_FLOOR, "eltwise"},
    {"", "GRU", 7, NEWEST, esp_i_rule_recurrent, ESP_KIND_GRU, "gru, reshape, slice, concat"},
    {"", "Gather", 1, NEWEST, esp_i_rule_gather, 0, "gather; or slice"},
    {"", "GatherElements", 11, NEWEST, esp_i_rule_gather_elements, 0, "gather, range, eltwise"},
    {"", "GatherND", 11, NEWEST, esp_i_rule_gather_nd, 0, "gather, slice, eltwise"},
    {"", "Gelu", 20, NEWEST, esp_i_rule_gelu, 0, "eltwise"},
    {"", "Gemm", 7, NEWEST, esp_i_rule_gemm, 0, "contract, eltwise"},
    {"", "GlobalAveragePool", 1, NEWEST, esp_i_rule_global_pool, 0, "reduce, eltwise"},
    {"", "GlobalMaxPool", 1, NEWEST, esp_i_rule_global_pool, 1, "reduce"},
    {"", "Greater", 7, NEWEST, esp_i_rule_compare, ESP_ELT_GREATER, "eltwise"},
    {"", "GreaterOrEqual", 12, NEWEST, esp_i_rule_compare, ESP_ELT_GREATER_EQUAL, "eltwise"},
    {"", "GroupNormalization", 18, NEWEST, esp_i_rule_groupnorm, 0, "reshape, reduce, eltwise"},
    {"", "HardSigmoid", 6, NEWEST, esp_i_rule_alpha, ESP_ELT_HARD_SIGMOID, "eltwise"},
    {"", "HardSwish", 14, NEWEST, esp_i_rule_unary, ESP_ELT_HARD_SWISH, "eltwise"},
    {"", "Identity", 1, NEWEST, esp_i_rule_identity, 0, "nothing"},
    {"", "If", 1, NEWEST, esp_i_rule_if, 0, "its branch"},
    {"", "InstanceNormalization", 6, NEWEST, esp_i_rule_instancenorm, 0, "reduce, eltwise"},
    {"", "IsInf", 10, NEWEST, esp_i_rule_is_inf, 0, "eltwise"},
    {"", "IsNaN", 9, NEWEST, esp_i_rule_is_nan, 0, "eltwise"},
    {"", "LRN", 1, NEWEST, esp_i_rule_lrn, 0, "reshape, pool, eltwise"},
    {"", "LSTM", 7, NEWEST, esp_i_rule_recurrent, ESP_KIND_LSTM, "lstm, reshape, slice, concat"},
    {"", "LayerNormalization", 1, NEWEST, esp_i_rule_layernorm, 0, "layernorm"},
    {"", "LeakyRelu", 6, NEWEST, esp_i_rule_alpha, ESP_ELT_LEAKY_RELU, "eltwise"},
    {"", "Less", 7, NEWEST, esp_i_rule_compare, ESP_ELT_LESS, "eltwise"},
    {"", "LessOrEqual", 12, NEWEST, esp_i_rule_compare, ESP_ELT_LESS_EQUAL, "eltwise"},
    {"", "Log", 6, NEWEST, esp_i_rule_unary, ESP_ELT_LOG, "eltwise"},
    {"", "LogSoftmax", 1, NEWEST, esp_i_rule_softmax, 1, "softmax"},
    {"", "LpNormalization", 1, NEWEST, esp_i_rule_lp_normalization, 0, "reduce, eltwise"},
    {"", "MatMul", 1, NEWEST, esp_i_rule_matmul, 0, "contract, reshape"},
    {"", "Max", 6, NEWEST, esp_i_rule_variadic, ESP_ELT_MAX, "eltwise"},
    {"", "MaxPool", 1, NEWEST, esp_i_rule_pool, 1, "pool"},
    {"", "Mean", 6, NEWEST, esp_i_rule_variadic, ESP_ELT_AFFINE, "eltwise"},
    {"", "MeanVarianceNormalization", 9, NEWEST, esp_i_rule_mean_variance, 0, "reduce, eltwise"},
    {"", "Min", 6, NEWEST, esp_i_rule_variadic, ESP_ELT_MIN, "eltwise"},
    {"", "Mish", 18, NEWEST, esp_i_rule_mish, 0, "eltwise"},
    {"", "Mod", 10, NEWEST, esp_i_rule_mod, 0, "eltwise"},
    {"", "Mul", 7, NEWEST, esp_i_rule_binary, ESP_ELT_MUL, "eltwise"},
    {"", "Neg", 6, NEWEST, esp_i_rule_unary, ESP_ELT_NEG, "eltwise"},
    {"", "NegativeLogLikelihoodLoss", 12, NEWEST, esp_i_rule_nll, 0,
     "transpose, xent, reduce, eltwise"},
    {"", "NonZero", 9, NEWEST, esp_i_rule_non_zero, 0, "a constant"},
    {"", "Not", 1, NEWEST, esp_i_rule_unary, ESP_ELT_NOT, "eltwise"},
    {"", "OneHot", 9, NEWEST, esp_i_rule_one_hot, 0, "range, eltwise"},
    {"", "Or", 7, NEWEST, esp_i_rule_compare, ESP_ELT_OR, "eltwise"},
    {"", "PRelu", 7, NEWEST, esp_i_rule_prelu, 0, "eltwise"},
    {"", "Pad", 2, NEWEST, esp_i_rule_pad, 0, "pad, gather"},
    {"", "Pow", 7, NEWEST, esp_i_rule_binary, ESP_ELT_POW, "eltwise"},
    {"", "RMSNormalization", 23, NEWEST, esp_i_rule_layernorm, 1, "layernorm"},
    {"", "RNN", 7, NEWEST, esp_i_rule_recurrent, ESP_KIND_RNN, "rnn, reshape, slice, concat"},
    {"", "RandomNormal", 1, NEWEST, esp_i_rule_random, 1, "random"},
    {"", "RandomNormalLike", 1, NEWEST, esp_i_rule_random_like, 1, "random"},
    {"", "RandomUniform", 1, NEWEST, esp_i_rule_random, 0, "random"},
    {"", "RandomUniformLike", 1, NEWEST, esp_i_rule_random_like, 0, "random"},
    {"", "Range", 11, NEWEST, esp_i_rule_range, 0, "range"},
    {"", "Reciprocal", 6, NEWEST, esp_i_rule_unary, ESP_ELT_RECIPROCAL, "eltwise"},
    {"", "ReduceL1", 1, NEWEST, esp_i_rule_reduce_norm, 1, "eltwise, reduce"},
    {"", "ReduceL2", 1, NEWEST, esp_i_rule_reduce_norm, 2, "reduce, eltwise"},
    {"", "ReduceLogSum", 1, NEWEST, esp_i_rule_reduce_norm, 3, "reduce, eltwise"},
    {"", "ReduceLogSumExp", 1, NEWEST, esp_i_rule_reduce_log_sum_exp, 0, "reduce, eltwise"},
    {"", "ReduceMax", 1, NEWEST, esp_i_rule_reduce, ESP_REDUCE_MAX, "reduce"},
    {"", "ReduceMean", 1, NEWEST, esp_i_rule_reduce_mean, 0, "reduce, eltwise"},
    {"", "ReduceMin", 1, NEWEST, esp_i_rule_reduce, ESP_REDUCE_MIN, "reduce"},
    {"", "ReduceProd", 1, NEWEST, esp_i_rule_reduce, ESP_REDUCE_PROD, "reduce"},
    {"", "ReduceSum", 1, NEWEST, esp_i_rule_reduce, ESP_REDUCE_SUM, "reduce"},
    {"", "ReduceSumSquare", 1, NEWEST, esp_i_rule_reduce, ESP_REDUCE_SUMSQ, "reduce"},
    {"", "Relu", 6, NEWEST, esp_i_rule_unary, ESP_ELT_RELU, "eltwise"},
    {"", "Reshape", 5, NEWEST, esp_i_rule_reshape, 0, "reshape"},
    {"", "Resize", 10, NEWEST, esp_i_rule_resize, 0, "expand, gather, contract"},
    {"", "Round", 11, NEWEST, esp_i_rule_unary, ESP_ELT_ROUND, "eltwise"},
    {"", "ScatterND", 11, NEWEST, esp_i_rule_scatter_nd, 0, "a constant"},
    {"", "Selu", 6, NEWEST, esp_i_rule_selu, 0, "eltwise"},
    {"", "Shape", 1, NEWEST, esp_i_rule_shape, 0, "a constant"},
    {"", "Sigmoid", 6, NEWEST, esp_i_rule_unary, ESP_ELT_SIGMOID, "eltwise"},
    {"", "Sign", 9, NEWEST, esp_i_rule_unary, ESP_ELT_SIGN, "eltwise"},
    {"", "Sin", 7, NEWEST, esp_i_rule_unary, ESP_ELT_SIN, "eltwise"},
    {"", "Size", 1, NEWEST, esp_i_rule_size, 0, "a constant"},
    {"", "Slice", 1, NEWEST, esp_i_rule_slice, 0, "slice"},
    {"", "Softmax", 1, NEWEST, esp_i_rule_softmax, 0, "softmax"},
    {"", "SoftmaxCrossEntropyLoss", 12, NEWEST, esp_i_rule_cross_entropy, 0,
     "transpose, xent, reduce, eltwise"},
    {"", "Softplus", 1, NEWEST, esp_i_rule_unary, ESP_ELT_SOFTPLUS, "eltwise"},
    {"", "Softsign", 1, NEWEST, esp_i_rule_softsign, 0, "eltwise"},
    {"", "SpaceToDepth", 1, NEWEST, esp_i_rule_depth_space, 1, "reshape, transpose"},
    {"", "Split", 2, NEWEST, esp_i_rule_split, 0, "slice"},
    {"", "Sqrt", 6, NEWEST, esp_i_rule_unary, ESP_ELT_SQRT, "eltwise"},
    {"", "Squeeze", 1, NEWEST, esp_i_rule_squeeze, 0, "reshape"},
    {"", "Sub", 7, NEWEST, esp_i_rule_binary, ESP_ELT_SUB, "eltwise"},
    {"", "Sum", 6, NEWEST, esp_i_rule_variadic, ESP_ELT_ADD, "eltwise"},
    {"", "Swish", 24, NEWEST, esp_i_rule_swish, 0, "eltwise"},
    {"", "Tan", 7, NEWEST, esp_i_rule_tan, 0, "eltwise"},
    {"", "Tanh", 6, NEWEST, esp_i_rule_unary, ESP_ELT_TANH, "eltwise"},
    {"", "ThresholdedRelu", 10, NEWEST, esp_i_rule_thresholded_relu, 0, "eltwise"},
    {"", "Tile", 6, NEWEST, esp_i_rule_tile, 0, "reshape, expand"},
    {"", "Transpose", 1, NEWEST, esp_i_rule_transpose, 0, "transpose"},
    {"", "Trilu", 14, NEWEST, esp_i_rule_trilu, 0, "range, eltwise"},
    {"", "Unsqueeze", 1, NEWEST, esp_i_rule_unsqueeze, 0, "reshape"},
    {"", "Upsample", 7, 9, esp_i_rule_resize, 1, "expand, gather, contract"},
    {"", "Where", 9, NEWEST, esp_i_rule_where, 0, "eltwise"},
    {"", "Xor", 7, NEWEST, esp_i_rule_compare, ESP_ELT_XOR, "eltwise"},
};

/* Ops that are known and not supported: their error says more than "not supported". */
static const esp_i_onnx_op_t refused[] = {
    {"", "ConcatFromSequence", 1, NEWEST, esp_i_rule_refuse, 1, ""},
    {"", "Loop", 1, NEWEST, esp_i_rule_refuse, 0, ""},
    {"", "Optional", 1, NEWEST, esp_i_rule_refuse, 1, ""},
    {"", "Scan", 1, NEWEST, esp_i_rule_refuse, 0, ""},
    {"", "SequenceAt", 1, NEWEST, esp_i_rule_refuse, 1, ""},
    {"", "SequenceConstruct", 1, NEWEST, esp_i_rule_refuse, 1, ""},
    {"", "SplitToSequence", 1, NEWEST, esp_i_rule_refuse, 1, ""},
};

static bool is_domain(esp_i_str_t domain, const char *other)
{
    return esp_i_str_is(domain, other) || (other[0] == '\0' && esp_i_str_is(domain, "ai.onnx"));
}

static const esp_i_onnx_op_t *search(const esp_i_onnx_op_t *table, size_t count, esp_i_str_t domain,
                                     esp_i_str_t name, int64_t opset,
                                     const esp_i_onnx_op_t **other_out)
{
    for (size_t k = 0; k < count; k++) {
        if (!esp_i_str_is(name, table[k].name) || !is_domain(domain, table[k].domain))
            continue;
        if (opset >= table[k].since && opset <= table[k].until)
            return &table[k];
        *other_out = &table[k];
    }
    return NULL;
}

const esp_i_onnx_op_t *esp_i_onnx_find(esp_i_str_t domain, esp_i_str_t name, int64_t opset,
                                       const esp_i_onnx_op_t **other_out)
{
    *other_out = NULL;
    const esp_i_onnx_op_t *found =
        search(ops, sizeof ops / sizeof *ops, domain, name, opset, other_out);
    if (found == NULL)
        found = search(refused, sizeof refused / sizeof *refused, domain, name, opset, other_out);
    return found;
}

int esp_onnx_op_at(int32_t index, esp_onnx_op_t *op_out)
{
    if (index < 0 || index >= (int32_t)(sizeof ops / sizeof *ops))
        return 0;
    const esp_i_onnx_op_t *op = &ops[index];
    *op_out = (esp_onnx_op_t){op->domain, op->name, op->since, op->until, op->becomes};
    return 1;
}
