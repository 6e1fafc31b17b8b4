/* The members of esp_attr_t, per kind, as a table. */
#include "graph/attr.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

static const char *const eltwise_names[] = {
#define ESP_ELT(name, text, arity, flop) text,
#include "espalier/eltwise.def"
#undef ESP_ELT
    NULL};
static const char *const dtype_names[] = {
#define ESP_DTYPE_TEXT(name, text, size) text,
    ESP_DTYPE_MAP(ESP_DTYPE_TEXT)
#undef ESP_DTYPE_TEXT
        NULL};
static const char *const reduce_names[] = {"sum", "max", "min", "prod", "sumsq", NULL};
static const char *const random_names[] = {"uniform", "normal", "bernoulli", NULL};
static const char *const optimizer_names[] = {"sgd",   "momentum",  "adam",
                                              "adamw", "statistic", NULL};
_Static_assert(sizeof reduce_names / sizeof *reduce_names == ESP_REDUCE_SUMSQ + 2, "all named");
_Static_assert(sizeof random_names / sizeof *random_names == ESP_RANDOM_BERNOULLI + 2, "all named");
_Static_assert(sizeof optimizer_names / sizeof *optimizer_names == ESP_OPTIMIZER_STATISTIC + 2,
               "all named");

#define AT(member) offsetof(esp_attr_t, member)
#define I32(text, member)                                                                          \
    {                                                                                              \
        text, ESP_I_FIELD_I32, AT(member), 1, NULL                                                 \
    }
#define I64(text, member)                                                                          \
    {                                                                                              \
        text, ESP_I_FIELD_I64, AT(member), 1, NULL                                                 \
    }
#define F64(text, member)                                                                          \
    {                                                                                              \
        text, ESP_I_FIELD_F64, AT(member), 1, NULL                                                 \
    }
#define AXES32(text, member)                                                                       \
    {                                                                                              \
        text, ESP_I_FIELD_I32, AT(member), ESP_MAX_RANK, NULL                                      \
    }
#define AXES64(text, member)                                                                       \
    {                                                                                              \
        text, ESP_I_FIELD_I64, AT(member), ESP_MAX_RANK, NULL                                      \
    }
#define SPACE(text, member)                                                                        \
    {                                                                                              \
        text, ESP_I_FIELD_I64, AT(member), ESP_MAX_SPATIAL, NULL                                   \
    }
#define LABELS(text, member)                                                                       \
    {                                                                                              \
        text, ESP_I_FIELD_LABELS, AT(member), ESP_MAX_RANK, NULL                                   \
    }
#define ENUM(text, member, values)                                                                 \
    {                                                                                              \
        text, ESP_I_FIELD_ENUM, AT(member), 1, values                                              \
    }
#define WINDOW(of)                                                                                 \
    I32("spatial", of.window.rank), SPACE("kernel", of.window.kernel),                             \
        SPACE("stride", of.window.stride), SPACE("dilation", of.window.dilation),                  \
        SPACE("pad_lo", of.window.pad_lo), SPACE("pad_hi", of.window.pad_hi)

static const esp_i_field_t contract_fields[] = {LABELS("a", contract.a), LABELS("b", contract.b),
                                                LABELS("y", contract.y)};
static const esp_i_field_t conv_fields[] = {WINDOW(conv), I64("groups", conv.groups),
                                            SPACE("target", conv.target)};
static const esp_i_field_t pool_fields[] = {WINDOW(pool), I32("is_max", pool.is_max),
                                            I32("count_padding", pool.count_padding),
                                            SPACE("target", pool.target)};
static const esp_i_field_t eltwise_fields[] = {ENUM("code", eltwise.code, eltwise_names),
                                               F64("alpha", eltwise.alpha),
                                               F64("beta", eltwise.beta)};
static const esp_i_field_t reduce_fields[] = {ENUM("code", reduce.code, reduce_names),
                                              I32("axes", reduce.axes), I32("keep", reduce.keep)};
static const esp_i_field_t shape_fields[] = {I32("rank", shape.rank), AXES64("dims", shape.dims)};
static const esp_i_field_t fill_fields[] = {I32("rank", shape.rank), AXES64("dims", shape.dims),
                                            ENUM("dtype", shape.dtype, dtype_names),
                                            F64("value", shape.value)};
static const esp_i_field_t range_fields[] = {
    I32("rank", shape.rank),   AXES64("dims", shape.dims), ENUM("dtype", shape.dtype, dtype_names),
    F64("value", shape.value), F64("step", shape.step),    I32("axis", shape.axis)};
static const esp_i_field_t random_fields[] = {
    I32("rank", shape.rank),    AXES64("dims", shape.dims), ENUM("dtype", shape.dtype, dtype_names),
    F64("value", shape.value),  F64("step", shape.step),    ENUM("law", shape.law, random_names),
    I64("stream", shape.stream)};
static const esp_i_field_t transpose_fields[] = {AXES32("perm", transpose.perm)};
static const esp_i_field_t slice_fields[] = {
    AXES64("start", slice.start), AXES64("step", slice.step), AXES64("count", slice.count)};
static const esp_i_field_t pad_fields[] = {AXES64("lo", pad.lo), AXES64("hi", pad.hi),
                                           AXES64("between", pad.between), F64("value", pad.value)};
static const esp_i_field_t axis_fields[] = {I32("axis", axis.axis), I32("log", axis.log),
                                            I64("extent", axis.extent)};
static const esp_i_field_t cast_fields[] = {ENUM("dtype", cast.dtype, dtype_names)};
static const esp_i_field_t dropout_fields[] = {F64("p", dropout.p), I64("stream", dropout.stream)};
static const esp_i_field_t norm_fields[] = {F64("epsilon", norm.epsilon), I32("axis", norm.axis),
                                            I32("rms", norm.rms), I64("count", norm.count)};
static const esp_i_field_t xent_fields[] = {I64("ignore", xent.ignore),
                                            F64("smoothing", xent.smoothing)};
static const esp_i_field_t update_fields[] = {ENUM("optimizer", update.optimizer, optimizer_names),
                                              F64("rate", update.rate),
                                              F64("momentum", update.momentum),
                                              F64("beta1", update.beta1),
                                              F64("beta2", update.beta2),
                                              F64("epsilon", update.epsilon),
                                              F64("decay", update.decay)};

static const esp_i_field_t attention_fields[] = {
    LABELS("q", attention.q),    LABELS("k", attention.k),        LABELS("v", attention.v),
    LABELS("y", attention.y),    LABELS("s", attention.s),        F64("scale", attention.scale),
    F64("fill", attention.fill), I32("hidden", attention.hidden), I32("dmask", attention.dmask),
    F64("p", attention.p),       I64("stream", attention.stream)};
static const esp_i_field_t recurrent_fields[] = {
    I32("reverse", recurrent.reverse), I32("linear_before_reset", recurrent.linear_before_reset),
    I32("relu", recurrent.relu)};

#define TABLE(fields)                                                                              \
    {                                                                                              \
        (fields), (int32_t)(sizeof(fields) / sizeof *(fields))                                     \
    }

static const struct {
    const esp_i_field_t *fields;
    int32_t count;
} tables[ESP_KIND_COUNT] = {
    [ESP_KIND_CONTRACT] = TABLE(contract_fields),
    [ESP_KIND_CONV] = TABLE(conv_fields),
    [ESP_KIND_CONV_DX] = TABLE(conv_fields),
    [ESP_KIND_CONV_DW] = TABLE(conv_fields),
    [ESP_KIND_POOL] = TABLE(pool_fields),
    [ESP_KIND_POOL_GRAD] = TABLE(pool_fields),
    [ESP_KIND_ELTWISE] = TABLE(eltwise_fields),
    [ESP_KIND_REDUCE] = TABLE(reduce_fields),
    [ESP_KIND_RESHAPE] = TABLE(shape_fields),
    [ESP_KIND_EXPAND] = TABLE(shape_fields),
    [ESP_KIND_FILL] = TABLE(fill_fields),
    [ESP_KIND_RANGE] = TABLE(range_fields),
    [ESP_KIND_RANDOM] = TABLE(random_fields),
    [ESP_KIND_TRANSPOSE] = TABLE(transpose_fields),
    [ESP_KIND_SLICE] = TABLE(slice_fields),
    [ESP_KIND_PAD] = TABLE(pad_fields),
    [ESP_KIND_CONCAT] = TABLE(axis_fields),
    [ESP_KIND_GATHER] = TABLE(axis_fields),
    [ESP_KIND_SCATTER_ADD] = TABLE(axis_fields),
    [ESP_KIND_SOFTMAX] = TABLE(axis_fields),
    [ESP_KIND_SOFTMAX_GRAD] = TABLE(axis_fields),
    [ESP_KIND_CAST] = TABLE(cast_fields),
    [ESP_KIND_DROPOUT] = TABLE(dropout_fields),
    [ESP_KIND_BN_STATS] = TABLE(norm_fields),
    [ESP_KIND_BN_NORM] = TABLE(norm_fields),
    [ESP_KIND_BN_GRAD_STATS] = TABLE(norm_fields),
    [ESP_KIND_BN_GRAD] = TABLE(norm_fields),
    [ESP_KIND_LAYERNORM] = TABLE(norm_fields),
    [ESP_KIND_LAYERNORM_GRAD] = TABLE(norm_fields),
    [ESP_KIND_XENT] = TABLE(xent_fields),
    [ESP_KIND_XENT_GRAD] = TABLE(xent_fields),
    [ESP_KIND_UPDATE] = TABLE(update_fields),
    [ESP_KIND_ATTENTION] = TABLE(attention_fields),
    [ESP_KIND_ATTENTION_GRAD] = TABLE(attention_fields),
    [ESP_KIND_LSTM] = TABLE(recurrent_fields),
    [ESP_KIND_LSTM_GRAD] = TABLE(recurrent_fields),
    [ESP_KIND_GRU] = TABLE(recurrent_fields),
    [ESP_KIND_GRU_GRAD] = TABLE(recurrent_fields),
    [ESP_KIND_RNN] = TABLE(recurrent_fields),
    [ESP_KIND_RNN_GRAD] = TABLE(recurrent_fields),
};

const esp_i_field_t *esp_i_attr_fields(esp_op_kind_t kind, int32_t *count_out)
{
    esp_assert(tables[kind].fields != NULL); /* every kind has attributes */
    *count_out = tables[kind].count;
    return tables[kind].fields;
}

/* ---- values ------------------------------------------------------------------------------- */

/* The elements of a field, in bytes: enumerations are as wide as int. */
static size_t width(const esp_i_field_t *field)
{
    switch (field->type) {
    case ESP_I_FIELD_LABELS:
        return sizeof(int8_t);
    case ESP_I_FIELD_I32:
    case ESP_I_FIELD_ENUM:
        return sizeof(int32_t);
    case ESP_I_FIELD_I64:
    case ESP_I_FIELD_F64:
        return sizeof(int64_t);
    }
    return 0;
}
_Static_assert(sizeof(esp_eltwise_t) == sizeof(int32_t), "enumerations are copied as int32_t");

static const char *place(const esp_i_field_t *field, const esp_attr_t *attr, int32_t i)
{
    return (const char *)attr + field->offset + (size_t)i * width(field);
}

int64_t esp_i_field_get(const esp_i_field_t *field, const esp_attr_t *attr, int32_t i)
{
    int64_t wide;
    int32_t narrow;
    int8_t label;
    switch (field->type) {
    case ESP_I_FIELD_LABELS:
        memcpy(&label, place(field, attr, i), sizeof label);
        return label;
    case ESP_I_FIELD_I32:
    case ESP_I_FIELD_ENUM:
        memcpy(&narrow, place(field, attr, i), sizeof narrow);
        return narrow;
    case ESP_I_FIELD_I64:
    case ESP_I_FIELD_F64:
        break;
    }
    memcpy(&wide, place(field, attr, i), sizeof wide);
    return wide;
}

bool esp_i_field_set(const esp_i_field_t *field, esp_attr_t *attr, int32_t i, int64_t value)
{
    char *at = (char *)attr + field->offset + (size_t)i * width(field);
    int32_t narrow = (int32_t)value;
    int8_t label = (int8_t)value;
    switch (field->type) {
    case ESP_I_FIELD_LABELS:
        memcpy(at, &label, sizeof label);
        return label == value;
    case ESP_I_FIELD_I32:
    case ESP_I_FIELD_ENUM:
        memcpy(at, &narrow, sizeof narrow);
        return narrow == value;
    case ESP_I_FIELD_I64:
    case ESP_I_FIELD_F64:
        break;
    }
    memcpy(at, &value, sizeof value);
    return true;
}

double esp_i_field_get_real(const esp_i_field_t *field, const esp_attr_t *attr, int32_t i)
{
    double value;
    memcpy(&value, place(field, attr, i), sizeof value);
    return value;
}

void esp_i_field_set_real(const esp_i_field_t *field, esp_attr_t *attr, int32_t i, double value)
{
    memcpy((char *)attr + field->offset + (size_t)i * width(field), &value, sizeof value);
}

esp_attr_t esp_i_attr_clean(esp_op_kind_t kind, const esp_attr_t *attr)
{
    esp_attr_t clean;
    int32_t n;
    const esp_i_field_t *fields = esp_i_attr_fields(kind, &n);
    memset(&clean, 0, sizeof clean);
    for (int32_t f = 0; f < n; f++)
        memcpy((char *)&clean + fields[f].offset, (const char *)attr + fields[f].offset,
               width(&fields[f]) * (size_t)fields[f].count);
    return clean;
}

static int64_t count_names(const char *const *names)
{
    int64_t n = 0;
    while (names[n] != NULL)
        n++;
    return n;
}

esp_status_t esp_i_attr_check(esp_op_kind_t kind, const esp_attr_t *attr, esp_diag_t *diag)
{
    int32_t n;
    const esp_i_field_t *fields = esp_i_attr_fields(kind, &n);
    for (int32_t i = 0; i < n; i++) {
        const esp_i_field_t *field = &fields[i];
        if (field->type == ESP_I_FIELD_F64 && isnan(esp_i_field_get_real(field, attr, 0)))
            return esp_i_fail(diag, ESP_ERR_INVALID, "%s of %s is NaN", field->name,
                              esp_kind_name(kind));
        if (field->type != ESP_I_FIELD_ENUM)
            continue;
        int64_t value = esp_i_field_get(field, attr, 0);
        if (value < 0 || value >= count_names(field->names))
            return esp_i_fail(diag, ESP_ERR_INVALID, "attribute %s has no value %lld", field->name,
                              (long long)value);
    }
    return ESP_OK;
}
