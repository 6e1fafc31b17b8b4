/*
 * Every import rule computes what ONNX says: small nodes run by the reference interpreter. The
 * expected numbers are those of ONNX's own reference evaluator.
 */
#include "interp.h"
#include "onnx_writer.h"
#include "support.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/*
 * Inputs: "f 2 3" floats 2 sin(1.3 e + k + 1) of input k, "p 2 3" the same positive, "b 2 2"
 * booleans, "l3 4" integers below 3; "I 2:0 -1" and "F :0.5" known integers and floats; "_" none.
 */
typedef struct node_case {
    const char *type;
    int64_t opset;
    const char *attributes, *inputs[5];
    int32_t n_outputs; /* the last one is compared */
    const char *shape, *expected;
} node_case_t;

static const node_case_t cases[] = {
    {"Gemm",
     13,
     "transB=1 alpha=0.5 beta=2.0",
     {"f 2 3", "f 4 3", "f 4"},
     1,
     "2 4",
     "2.73897 -3.81689 -4.47855 5.30217 -3.06015 -1.56396 -1.95037 -0.621326"},
    {"Gemm",
     13,
     "transA=1",
     {"f 3 2", "f 3 4", "f 2 1"},
     1,
     "2 4",
     "1.99301 -1.9632 -2.62984 0.969727 -2.86037 -2.04162 -0.916261 -1.13295"},
    {"MatMul",
     13,
     "",
     {"f 2 1 2 3", "f 4 3 2"},
     1,
     "2 4 2 2",
     "-1.30827 -3.05955 -0.265264 3.7401 -2.87856 0.34255 3.93511 1.51349 0.997642 3.09651 "
     "0.689906 -3.57677 2.98621 -0.00840295 -3.86066 -1.89946 1.6934 -2.37056 -2.19332 -0.298358 "
     "-2.8347 -2.53993 0.18048 2.17415 -1.99929 2.09648 2.2128 0.532972 2.61895 2.76617 0.0583042 "
     "-2.11664"},
    {"MatMul", 13, "", {"f 3", "f 2 3 2"}, 1, "2 2", "-1.30827 -3.05955 -2.87856 0.34255"},
    {"MatMul", 13, "", {"f 2 2 3", "f 3"}, 1, "2 2", "4.34898 -7.24927 6.17598 -1.71742"},
    {"Einsum",
     12,
     "equation=bij,bjk->ik",
     {"f 2 2 3", "f 2 3 2"},
     1,
     "2 2",
     "-4.14296 -5.59948 -0.0847835 5.91424"},
    {"Einsum", 12, "equation=ij,jk,k->i", {"f 2 3", "f 3 4", "f 4"}, 1, "2", "4.47288 -16.6409"},
    {"Einsum",
     12,
     "equation=...ij->...ji",
     {"f 2 2 3"},
     1,
     "2 3 2",
     "1.68294 -1.96491 1.49141 -0.166179 -0.885041 1.876 1.16983 0.266464 -1.25014 1.98121 "
     "-1.83866 0.793481"},
    {"Conv",
     13,
     "pads=[1,0,0,1] strides=[2,1] dilations=[1,2]",
     {"f 1 2 4 5", "f 2 2 2 2", "f 2"},
     1,
     "1 2 2 4",
     "0.0567011 0.787737 0.778218 4.91045 3.70332 1.90236 -2.27208 -0.644405 3.24711 1.26951 "
     "-5.25229 -6.31349 -2.85732 -3.73774 -1.82673 -2.54097"},
    {"Conv",
     13,
     "group=2 auto_pad=SAME_LOWER strides=[2,2]",
     {"f 1 2 5 4", "f 4 1 2 3"},
     1,
     "1 4 3 2",
     "5.05314 -5.65797 -6.16893 9.73989 1.4672 -6.20503 0.524224 3.74428 -2.97951 -1.11398 6.12753 "
     "-7.01742 -2.67958 4.45359 1.50355 -6.30169 4.4485 -2.74328 -2.83412 1.99574 6.19449 -6.99917 "
     "-3.9058 8.89611"},
    {"ConvTranspose",
     13,
     "strides=[2,2] pads=[1,0,0,1] output_padding=[1,0]",
     {"f 1 2 2 3", "f 2 2 3 2", "f 2"},
     1,
     "1 2 5 5",
     "-0.779312 0.127294 -5.12159 -2.0122 -1.54724 -2.81814 1.60755 0.396609 5.06322 3.4438 4.7073 "
     "2.00285 4.47912 2.27534 -1.8975 -3.2223 -3.31329 -2.84834 -3.38571 2.11192 0.28224 0.28224 "
     "0.28224 0.28224 0.28224 -1.75591 -0.78355 -3.00364 3.00786 -2.5354 0.233272 1.81951 3.0967 "
     "-0.367552 -1.26091 -1.03717 -5.84825 -0.703847 -5.52155 -2.02376 -4.776 0.608727 -4.93454 "
     "0.19721 -0.548333 -1.83233 -1.83233 -1.83233 -1.83233 -1.83233"},
    {"ConvTranspose",
     13,
     "group=2 strides=[2]",
     {"f 1 2 4", "f 2 1 2"},
     1,
     "1 2 8",
     "3.06059 -0.530954 2.71227 -0.470527 -1.60953 0.279223 -3.57337 0.619911 0.330261 0.124261 "
     "-3.72833 -1.40279 -2.32491 -0.874748 2.48451 0.934797"},
    {"MaxPool",
     12,
     "kernel_shape=[2,2] strides=[2,2] ceil_mode=1",
     {"f 1 1 5 5"},
     1,
     "1 1 3 3",
     "1.876 -0.885041 0.266464 1.99366 -1.33782 1.07464 1.91275 -0.986682 1.41234"},
    {"AveragePool",
     11,
     "kernel_shape=[3,2] pads=[1,0,1,1] count_include_pad=0",
     {"f 1 1 4 4"},
     1,
     "1 1 4 4",
     "1.22104 0.913051 -0.732563 -1.60752 0.551997 0.983314 -0.0259262 -0.807188 -0.507565 "
     "0.725638 0.89578 0.512333 -1.1888 0.326999 1.36375 1.39357"},
    {"AveragePool",
     11,
     "kernel_shape=[3,2] pads=[1,0,1,1] count_include_pad=1 strides=[2,2]",
     {"f 1 1 4 4"},
     1,
     "1 1 2 2",
     "0.814029 -0.488376 -0.507565 0.89578"},
    /* PyTorch's numbers: what ceil_mode adds is not counted, as it is by older evaluators */
    {"AveragePool",
     11,
     "kernel_shape=[3,3] pads=[1,1,1,1] count_include_pad=1 strides=[2,2] ceil_mode=1",
     {"f 1 1 4 6"},
     1,
     "1 1 3 4",
     "0.343783 -0.464541 0.309564 0.444914 -0.391833 0.129746 0.0717998 -0.330596 -0.0438626 "
     "0.489345 -0.49637 -0.24667"},
    {"GlobalAveragePool",
     7,
     "",
     {"f 2 2 2 3"},
     1,
     "2 2 1 1",
     "0.339038 0.187033 -0.318855 -0.221441"},
    {"GlobalMaxPool", 7, "", {"f 2 2 3"}, 1, "2 2 1", "1.68294 1.876 1.16983 1.98121"},
    {"LRN",
     13,
     "size=3 alpha=0.5 beta=0.75 bias=1.5",
     {"f 1 5 2 2"},
     1,
     "1 5 2 2",
     "1.00954 0.7599 -0.555991 -1.01776 -0.082592 0.952417 0.58614 -0.627117 -0.932659 0.132469 "
     "1.00836 0.395797 -0.785008 -0.821225 0.342172 1.01501 0.232237 -0.907309 -0.834299 0.565304"},
    {"InstanceNormalization",
     7,
     "epsilon=0.01",
     {"f 2 2 3", "f 2", "f 2"},
     1,
     "2 2 3",
     "1.70918 1.41206 -2.27452 -1.45512 -1.81605 -2.22583 2.80252 -0.568054 -1.38775 -1.50675 "
     "-2.25387 -1.73637"},
    {"LayerNormalization",
     17,
     "axis=1 epsilon=0.01",
     {"f 2 2 3", "f 2 3", "f 2 3"},
     1,
     "2 2 3",
     "1.96756 -2.08303 0.414996 2.34486 1.32846 1.54224 1.61517 -1.49419 1.73981 1.11258 4.0054 "
     "0.571965"},
    {"LayerNormalization",
     17,
     "axis=-1",
     {"f 2 4", "f 4"},
     1,
     "2 4",
     "1.87314 -0.2861 1.23464 0.983743 -0.865135 -0.384298 -1.2568 1.02799"},
    {"GroupNormalization",
     21,
     "num_groups=2 epsilon=0.01",
     {"f 1 4 3", "f 4", "f 4"},
     1,
     "1 4 3",
     "1.96756 1.72737 -1.25282 -1.3311 -1.72242 -2.1667 -2.71918 0.86755 1.73981 1.11258 0.156348 "
     "0.818692"},
    {"LpNormalization",
     7,
     "axis=1 p=1",
     {"p 2 3"},
     1,
     "2 3",
     "0.392658 0.358206 0.249135 0.447588 0.120968 0.431444"},
    {"BatchNormalization",
     15,
     "epsilon=0.01",
     {"f 2 3 2", "f 3", "f 3", "f 3", "p 3"},
     1,
     "2 3 2",
     "4.01308 3.78953 -2.16587 -1.70381 -0.259562 -2.8547 3.41421 0.589741 -1.75783 -2.6586 "
     "-2.98841 -1.47907"},
    {"Softmax",
     13,
     "axis=1",
     {"f 2 3 2"},
     1,
     "2 3 2",
     "0.81033 0.399911 0.0621443 0.0126155 0.127526 0.587474 0.302996 0.0753281 0.0149577 0.34325 "
     "0.682047 0.581422"},
    {"Softmax",
     11,
     "axis=1",
     {"f 2 3 2"},
     1,
     "2 3 2",
     "0.303144 0.250304 0.0232482 0.00789604 0.0477075 0.3677 0.223171 0.0198452 0.0110171 "
     "0.0904294 0.502361 0.153176"},
    {"LogSoftmax",
     13,
     "axis=-1",
     {"f 2 3"},
     1,
     "2 3",
     "-0.643108 -0.834639 -3.21109 -3.98173 -2.183 -0.140822"},
    {"SoftmaxCrossEntropyLoss",
     13,
     "reduction=mean ignore_index=1",
     {"f 4 3", "l3 4"},
     1,
     "",
     "0.135175"},
    {"SoftmaxCrossEntropyLoss",
     13,
     "reduction=mean",
     {"f 2 3 2", "l3 2 2", "f 3"},
     1,
     "",
     "1.58982"},
    {"NegativeLogLikelihoodLoss",
     13,
     "reduction=sum ignore_index=2",
     {"f 2 3 2", "l3 2 2", "f 3"},
     1,
     "",
     "-1.46361"},
    {"ReduceSum", 13, "keepdims=0", {"f 2 3 2", "I 2:0 -1"}, 1, "3", "3.09405 -4.42214 4.48452"},
    {"ReduceMean",
     18,
     "",
     {"f 2 3 2", "I 1:1"},
     1,
     "2 1 2",
     "0.210574 0.467502 0.437464 -0.0633987"},
    {"ReduceMean", 13, "axes=[0,2] keepdims=0", {"f 2 3 2"}, 1, "3", "0.773511 -1.10553 1.12113"},
    {"ReduceL2", 13, "axes=[1]", {"f 2 3"}, 1, "2 1", "2.41659 2.72174"},
    {"ReduceL1", 13, "axes=[1]", {"f 2 3"}, 1, "2 1", "4.05939 4.00708"},
    {"ReduceLogSumExp", 13, "axes=[1] keepdims=0", {"f 2 3"}, 1, "2", "2.32605 2.01682"},
    {"ReduceMax", 13, "axes=[-1]", {"f 2 3"}, 1, "2 1", "1.68294 1.876"},
    {"ReduceProd", 13, "", {"f 2 2"}, 1, "1 1", "4.36487"},
    {"CumSum",
     14,
     "exclusive=1 reverse=1",
     {"f 2 4", "I :1"},
     1,
     "2 4",
     "-1.35854 -2.84995 -1.96491 0 1.79569 -0.0803069 -1.25014 0"},
    {"Transpose",
     13,
     "perm=[2,0,1]",
     {"f 2 3 2"},
     1,
     "2 2 3",
     "1.68294 -0.885041 -0.166179 1.16983 -1.83866 1.98121 1.49141 -1.96491 1.876 -1.25014 "
     "0.266464 0.793481"},
    {"Slice",
     13,
     "",
     {"f 4 5", "I 2:-1 1", "I 2:-9223372036854775807 4", "I 2:0 1", "I 2:-2 2"},
     1,
     "2 2",
     "0.379973 -1.33782 1.16983 -1.83866"},
    {"Pad",
     18,
     "mode=reflect",
     {"f 2 4", "I 4:0 2 0 1"},
     1,
     "2 7",
     "-0.885041 1.49141 1.68294 1.49141 -0.885041 -1.96491 -0.885041 1.16983 1.876 -0.166179 1.876 "
     "1.16983 -1.25014 1.16983"},
    {"Pad",
     18,
     "mode=edge",
     {"f 2 3", "I 4:1 0 0 2"},
     1,
     "3 5",
     "1.68294 1.49141 -0.885041 -0.885041 -0.885041 1.68294 1.49141 -0.885041 -0.885041 -0.885041 "
     "-1.96491 -0.166179 1.876 1.876 1.876"},
    {"Tile",
     13,
     "",
     {"f 2 2", "I 2:2 3"},
     1,
     "4 6",
     "1.68294 1.49141 1.68294 1.49141 1.68294 1.49141 -0.885041 -1.96491 -0.885041 -1.96491 "
     "-0.885041 -1.96491 1.68294 1.49141 1.68294 1.49141 1.68294 1.49141 -0.885041 -1.96491 "
     "-0.885041 -1.96491 -0.885041 -1.96491"},
    {"Expand",
     13,
     "",
     {"f 2 1", "I 3:2 1 3"},
     1,
     "2 2 3",
     "1.68294 1.68294 1.68294 1.49141 1.49141 1.49141 1.68294 1.68294 1.68294 1.49141 1.49141 "
     "1.49141"},
    {"DepthToSpace",
     13,
     "blocksize=2 mode=CRD",
     {"f 1 4 1 2"},
     1,
     "1 1 2 4",
     "1.68294 -0.885041 1.49141 -1.96491 -0.166179 1.16983 1.876 -1.25014"},
    {"DepthToSpace",
     13,
     "blocksize=2 mode=DCR",
     {"f 1 4 1 2"},
     1,
     "1 1 2 4",
     "1.68294 -0.885041 1.49141 -1.96491 -0.166179 1.16983 1.876 -1.25014"},
    {"SpaceToDepth",
     13,
     "blocksize=2",
     {"f 1 1 2 4"},
     1,
     "1 4 1 2",
     "1.68294 -0.885041 1.49141 -1.96491 -0.166179 1.16983 1.876 -1.25014"},
    {"Gather",
     13,
     "axis=1",
     {"f 2 4", "I 2 2:3 -4 1 1"},
     1,
     "2 2 2",
     "-1.96491 1.68294 1.49141 1.49141 -1.25014 -0.166179 1.876 1.876"},
    {"Gather", 13, "axis=1", {"f 2 4", "I 2:1 3"}, 1, "2 2", "1.49141 -1.96491 1.876 -1.25014"},
    {"GatherElements",
     13,
     "axis=1",
     {"f 2 3", "l3 2 2"},
     1,
     "2 2",
     "1.49141 -0.885041 -1.96491 -0.166179"},
    {"GatherND",
     13,
     "batch_dims=1",
     {"f 2 3 2", "l2 2 1"},
     1,
     "2 2",
     "-0.885041 -1.96491 1.16983 -1.25014"},
    {"OneHot",
     11,
     "axis=0",
     {"l3 4", "I 1:3", "F 2:-1.0 2.5"},
     1,
     "3 4",
     "2.5 -1 -1 2.5 -1 2.5 -1 -1 -1 -1 2.5 -1"},
    {"Trilu",
     14,
     "upper=0",
     {"f 2 3 3", "I :1"},
     1,
     "2 3 3",
     "1.68294 1.49141 0 -1.96491 -0.166179 1.876 1.16983 -1.25014 -1.83866 0.266464 1.98121 0 "
     "-1.5567 -1.62631 0.68663 1.99366 0.379973 -1.79037"},
    {"Resize",
     13,
     "mode=linear coordinate_transformation_mode=half_pixel",
     {"f 1 1 2 3", "_", "_", "I 4:1 1 4 5"},
     1,
     "1 1 4 5",
     "1.68294 1.60633 1.49141 0.0655396 -0.885041 0.77098 0.893393 1.07701 0.313937 -0.194781 "
     "-1.05294 -0.532479 0.248218 0.810731 1.18574 -1.96491 -1.24541 -0.166179 1.05913 1.876"},
    {"Resize",
     13,
     "mode=linear coordinate_transformation_mode=align_corners",
     {"f 1 1 3", "_", "F 3:1.0 1.0 2.0"},
     1,
     "1 1 6",
     "1.68294 1.60633 1.52972 1.01612 0.0655396 -0.885041"},
    {"Resize",
     13,
     "mode=cubic",
     {"f 1 1 4", "_", "F 3:1.0 1.0 1.5"},
     1,
     "1 1 6",
     "1.69957 1.80997 1.15247 -0.453563 -1.64777 -2.05864"},
    {"Resize",
     13,
     "mode=nearest",
     {"f 1 1 4", "_", "_", "I 3:1 1 6"},
     1,
     "1 1 6",
     "1.68294 1.68294 1.49141 -0.885041 -0.885041 -1.96491"},
    {"Upsample",
     9,
     "mode=nearest",
     {"f 1 1 2 2", "F 4:1.0 1.0 2.0 2.0"},
     1,
     "1 1 4 4",
     "1.68294 1.68294 1.49141 1.49141 1.68294 1.68294 1.49141 1.49141 -0.885041 -0.885041 -1.96491 "
     "-1.96491 -0.885041 -0.885041 -1.96491 -1.96491"},
    {"Clip", 13, "", {"f 6", "F :-0.5", "F :1.0"}, 1, "6", "1 1 -0.5 -0.5 -0.166179 1"},
    {"PRelu",
     16,
     "",
     {"f 2 3", "f 3"},
     1,
     "2 3",
     "1.68294 1.49141 1.75891 -3.57337 0.052428 1.876"},
    {"Selu", 7, "", {"f 5"}, 1, "5", "1.76827 1.56703 -1.03254 -1.51167 -0.269174"},
    {"Celu", 12, "alpha=2.0", {"f 5"}, 1, "5", "1.68294 1.49141 -0.71517 -1.25122 -0.159462"},
    {"HardSigmoid",
     7,
     "alpha=0.3 beta=0.4",
     {"f 5"},
     1,
     "5",
     "0.904883 0.847423 0.134488 0 0.350146"},
    {"Mish", 18, "", {"f 5"}, 1, "5", "1.60227 1.39403 -0.294169 -0.256281 -0.0908317"},
    {"Softsign", 7, "", {"f 5"}, 1, "5", "0.627275 0.598621 -0.469508 -0.662721 -0.142499"},
    {"ThresholdedRelu", 10, "alpha=0.5", {"f 5"}, 1, "5", "1.68294 1.49141 0 0 0"},
    {"Gelu",
     20,
     "approximate=tanh",
     {"f 5"},
     1,
     "5",
     "1.60506 1.38988 -0.166559 -0.0484903 -0.0721232"},
    {"Elu", 7, "alpha=1.5", {"f 5"}, 1, "5", "1.68294 1.49141 -0.880954 -1.28975 -0.229658"},
    {"LeakyRelu",
     16,
     "alpha=0.2",
     {"f 5"},
     1,
     "5",
     "1.68294 1.49141 -0.177008 -0.392981 -0.0332358"},
    {"Mod", 13, "fmod=1", {"f 5", "f 5"}, 1, "5", "1.68294 0.229445 -0.885041 -0.469399 -0.166179"},
    {"Pow", 15, "", {"p 5", "f 5"}, 1, "5", "4.136 0.804669 0.523431 0.509366 0.524783"},
    {"Pow", 15, "", {"p 5", "F :2.5"}, 1, "5", "7.04053 5.59631 2.25765 9.53895 0.362224"},
    {"Mean",
     13,
     "",
     {"f 2 3", "f 3", "f 2 1"},
     1,
     "2 3",
     "1.26126 0.486053 -0.863394 -0.659547 -0.771334 -0.647905"},
    {"Max",
     13,
     "",
     {"f 2 3", "f 3", "f 2 1"},
     1,
     "2 3",
     "1.81859 1.49141 0.28224 1.81859 -0.166179 1.876"},
    {"Div", 14, "", {"F :3.0", "p 4"}, 1, "4", "1.29389 3.67876 1.20609 2.40432"},
    {"Sub", 14, "", {"F :3.0", "f 4"}, 1, "4", "1.18141 3.31549 4.98738 3.74775"},
    {"Where", 16, "", {"b 2 2", "f 2", "f 2 1"}, 1, "2 2", "1.81859 0.28224 -1.83233 -0.315491"},
    {"Split", 18, "axis=1 num_outputs=2", {"f 2 3"}, 2, "2 1", "-0.885041 1.876"},
    {"MeanVarianceNormalization",
     13,
     "axes=[1]",
     {"f 2 3"},
     1,
     "2 3",
     "0.787509 0.623532 -1.41104 -1.19807 -0.0517183 1.24978"},
    {"Flatten",
     13,
     "axis=-1",
     {"f 2 3 2"},
     1,
     "6 2",
     "1.68294 1.49141 -0.885041 -1.96491 -0.166179 1.876 1.16983 -1.25014 -1.83866 0.266464 "
     "1.98121 0.793481"},
    {"IsInf", 10, "detect_negative=0", {"f 3"}, 1, "3", "0 0 0"},
};

static const char *dims_of(const char *input, char dims[64])
{
    const char *rest = strchr(input, ' ');
    size_t length = strcspn(rest + 1, ":");
    assert_true(length < 64);
    memcpy(dims, rest + 1, length);
    dims[length] = '\0';
    return dims;
}

static void add_inputs(onnx_model_t *m, const node_case_t *c, char names[128])
{
    names[0] = '\0';
    for (int32_t k = 0; k < 5 && c->inputs[k] != NULL; k++) {
        const char *input = c->inputs[k];
        char name[3] = {'i', (char)('0' + k), '\0'}, dims[64];
        if (input[0] == '_')
            strcpy(name, "_");
        strcat(strcat(names, name), " ");
        if (input[0] == '_')
            continue;
        dims_of(input, dims);
        if (input[0] == 'I')
            om_ints(m, name, dims, strchr(input, ':') + 1);
        else if (input[0] == 'F')
            om_floats(m, name, dims, strchr(input, ':') + 1);
        else
            om_input(m, name,
                     input[0] == 'b'   ? OM_BOOL
                     : input[0] == 'l' ? OM_INT64
                                       : OM_FLOAT,
                     dims);
    }
}

static double element(const char *input, int32_t k, int64_t e)
{
    double number = (double)(float)(2 * sin(1.3 * (double)e + k + 1));
    if (input[0] == 'b')
        return (e * 7 + k) % 3 == 0;
    if (input[0] == 'l')
        return (double)((e * 7 + k) % strtol(input + 1, NULL, 10));
    return input[0] == 'p' ? fabs(number) + 0.5 : number;
}

static void set_inputs(interp_t *interp, const esp_graph_t *graph, const node_case_t *c)
{
    for (int32_t i = 0; i < graph->n_inputs; i++) {
        esp_tensor_id_t t = graph->input[i];
        int32_t k = graph->tensor_name[t][1] - '0';
        double *values = calloc((size_t)graph->tensor_elements[t] + 1, sizeof *values);
        assert_non_null(values);
        for (int64_t e = 0; e < graph->tensor_elements[t]; e++)
            values[e] = element(c->inputs[k], k, e);
        interp_set(interp, t, values);
        free(values);
    }
}

static void compare(const esp_graph_t *graph, const interp_t *interp, const node_case_t *c)
{
    esp_tensor_id_t y = graph->output[0];
    const char *shape = c->shape, *expected = c->expected;
    for (int32_t d = 0; d < graph->tensor_rank[y]; d++)
        if (graph->tensor_dims[y][d] != strtoll(shape, (char **)&shape, 10))
            fail_msg("%s %s: axis %d has extent %lld", c->type, c->attributes, (int)d,
                     (long long)graph->tensor_dims[y][d]);
    const double *values = interp_get(interp, y);
    for (int64_t e = 0; e < graph->tensor_elements[y]; e++) {
        double want = strtod(expected, (char **)&expected);
        bool equal = fabs(values[e] - want) <= 2e-5 * fmax(1, fabs(want));
        if (!equal && !(isnan(values[e]) && isnan(want)))
            fail_msg("%s %s: element %lld is %.9g instead of %.9g", c->type, c->attributes,
                     (long long)e, values[e], want);
    }
    assert_true(strspn(expected, " ") == strlen(expected));
}

static void test_rules(void **state)
{
    (void)state;
    for (size_t k = 0; k < sizeof cases / sizeof *cases; k++) {
        onnx_model_t m;
        char names[128];
        const char *outputs = cases[k].n_outputs == 1 ? "y0" : "y0 y1";
        om_init(&m, cases[k].opset);
        add_inputs(&m, &cases[k], names);
        om_node(&m, cases[k].type, names, outputs, cases[k].attributes);
        om_output(&m, cases[k].n_outputs == 1 ? "y0" : "y1");
        esp_graph_t *graph = om_graph(&m, NULL);
        interp_t *interp = interp_new(graph, 1);
        set_inputs(interp, graph, &cases[k]);
        interp_run(interp);
        compare(graph, interp, &cases[k]);
        interp_free(interp);
        esp_graph_destroy(graph);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
