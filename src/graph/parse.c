/* Reads the text form of a graph (see dump.c) by replaying it into a builder. */
#include "graph/attr.h"
#include "graph/build.h"
#include "graph/text.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct parser {
    const char *at, *end, *line_start;
    const char *token; /* where the last token began: errors point there */
    int64_t line;
    esp_diag_t *diag;
    const esp_allocator_t *alloc;
    esp_builder_t *builder;
    esp_i_arena_t arena;             /* strings and literals, until the graph is frozen */
    esp_i_names_t tensors, ops;      /* labels, in the order in which they are defined */
    ESP_VEC(esp_tensor_id_t) inputs; /* of the op at hand */
} parser_t;

typedef struct span {
    const char *text;
    size_t length;
} span_t;

#define FAIL(parser, ...) esp_i_fail((parser)->diag, ESP_ERR_SYNTAX, __VA_ARGS__)

/* ---- tokens ------------------------------------------------------------------------------- */

/* Moves to the next token of the line; a comment ends it. */
static char peek(parser_t *parser)
{
    while (parser->at < parser->end &&
           (*parser->at == ' ' || *parser->at == '\t' || *parser->at == '\r'))
        parser->at++;
    parser->token = parser->at;
    if (parser->at == parser->end || *parser->at == '\n' || *parser->at == '#')
        return '\0';
    return *parser->at;
}

static bool accept(parser_t *parser, char what)
{
    if (peek(parser) != what)
        return false;
    parser->at++;
    return true;
}

static esp_status_t expect(parser_t *parser, char what)
{
    return accept(parser, what) ? ESP_OK : FAIL(parser, "'%c' expected", what);
}

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
}

/* Letters, digits, _ and -; empty if there is none. */
static span_t word(parser_t *parser)
{
    span_t span = {NULL, 0};
    (void)peek(parser);
    span.text = parser->at;
    while (parser->at < parser->end && is_word(*parser->at))
        parser->at++;
    span.length = (size_t)(parser->at - span.text);
    return span;
}

static bool span_is(span_t span, const char *text)
{
    return strlen(text) == span.length && memcmp(span.text, text, span.length) == 0;
}

static esp_status_t integer(parser_t *parser, int64_t *value_out)
{
    int64_t value = 0;
    bool negative = accept(parser, '-');
    const char *first = parser->at;
    for (; parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9'; parser->at++) {
        int64_t digit = *parser->at - '0';
        if (!esp_i_mul_i64(value, 10, &value) ||
            !esp_i_add_i64(value, negative ? -digit : digit, &value))
            return FAIL(parser, "the number does not fit 64 bits");
    }
    if (parser->at == first)
        return FAIL(parser, "integer expected");
    *value_out = value;
    return ESP_OK;
}

/* Digits with sign, point and exponent, or inf; always with a point, whatever the locale. */
static esp_status_t real(parser_t *parser, double *value_out)
{
    char digits[64];
    size_t n = 0;
    (void)peek(parser);
    while (parser->at < parser->end && n + 1 < sizeof digits &&
           (is_word(*parser->at) || *parser->at == '.' || *parser->at == '+')) {
        char c = *parser->at++;
        digits[n++] = c == '.' ? localeconv()->decimal_point[0] : c;
    }
    digits[n] = '\0';
    char *rest;
    *value_out = strtod(digits, &rest);
    if (n == 0 || *rest != '\0' || isnan(*value_out))
        return FAIL(parser, "number expected");
    return ESP_OK;
}

static int hex_digit(char c)
{
    const char *digits = "0123456789abcdef";
    const char *found = c != '\0' ? strchr(digits, c) : NULL;
    return found != NULL ? (int)(found - digits) : -1;
}

static bool hex_byte(parser_t *parser, char *byte_out)
{
    if (parser->end - parser->at < 2)
        return false;
    int high = hex_digit(parser->at[0]), low = hex_digit(parser->at[1]);
    if (high < 0 || low < 0)
        return false;
    *byte_out = (char)(high * 16 + low);
    parser->at += 2;
    return true;
}

/* A quoted string, in the parser's arena. */
static esp_status_t string(parser_t *parser, const char **string_out)
{
    ESP_TRY(expect(parser, '"'));
    const char *close = parser->at;
    while (close < parser->end && *close != '"' && *close != '\n')
        close += *close == '\\' && close + 1 < parser->end && close[1] != '\n' ? 2 : 1;
    if (close >= parser->end || *close != '"')
        return FAIL(parser, "the string is not closed");
    char *out = esp_i_arena_alloc(&parser->arena, close - parser->at + 1, 1), *to = out;
    if (out == NULL)
        return esp_i_nomem(parser->diag);
    while (parser->at < close) {
        char c = *parser->at++;
        if (c == '\\') {
            c = *parser->at++;
            if (c == 'x' && !hex_byte(parser, &c))
                return FAIL(parser, "two hexadecimal digits expected after \\x");
        }
        if (c == '\0')
            return FAIL(parser, "a name cannot hold a NUL");
        *to++ = c;
    }
    parser->at = close + 1;
    *string_out = out;
    return ESP_OK;
}

/* %label or !label: the digits. */
static esp_status_t label(parser_t *parser, char sigil, span_t *label_out)
{
    ESP_TRY(expect(parser, sigil));
    label_out->text = parser->at;
    while (parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9')
        parser->at++;
    label_out->length = (size_t)(parser->at - label_out->text);
    return label_out->length > 0 ? ESP_OK : FAIL(parser, "digits expected after %c", sigil);
}

static esp_status_t defined(parser_t *parser, char sigil, int32_t *id_out)
{
    span_t name;
    ESP_TRY(label(parser, sigil, &name));
    *id_out =
        esp_i_names_find(sigil == '%' ? &parser->tensors : &parser->ops, name.text, name.length);
    return *id_out >= 0 ? ESP_OK
                        : FAIL(parser, "%c%.*s is not defined before", sigil,
                               (int)esp_i_min_i64((int64_t)name.length, 32), name.text);
}

/* Labels are defined in the order of ids, so the id of the name is that of tensor or op. */
static esp_status_t define(parser_t *parser, char sigil)
{
    span_t name;
    esp_i_names_t *names = sigil == '%' ? &parser->tensors : &parser->ops;
    ESP_TRY(label(parser, sigil, &name));
    int32_t count = names->count;
    int32_t id = esp_i_names_add(names, name.text, name.length);
    if (id < 0)
        return esp_i_nomem(parser->diag);
    return id == count ? ESP_OK : FAIL(parser, "defined a second time");
}

/* ---- parts of lines ----------------------------------------------------------------------- */

static esp_status_t dtype_and_dims(parser_t *parser, esp_i_shape_t *shape)
{
    span_t name = word(parser);
    shape->dtype = ESP_DTYPE_COUNT;
    for (int32_t i = 0; i < ESP_DTYPE_COUNT; i++)
        if (span_is(name, esp_dtype_name((esp_dtype_t)i)))
            shape->dtype = (esp_dtype_t)i;
    if (shape->dtype == ESP_DTYPE_COUNT)
        return FAIL(parser, "dtype expected");
    ESP_TRY(expect(parser, '['));
    for (shape->rank = 0; !accept(parser, ']');) {
        if (shape->rank > 0)
            ESP_TRY(expect(parser, ','));
        if (shape->rank == ESP_MAX_RANK)
            return FAIL(parser, "more than %d axes", ESP_MAX_RANK);
        ESP_TRY(integer(parser, &shape->dims[shape->rank++]));
    }
    return ESP_OK;
}

static bool role_of(span_t name, esp_role_t *role_out)
{
    for (int32_t i = 0; i < ESP_ROLE_COUNT; i++) {
        if (span_is(name, esp_role_name((esp_role_t)i))) {
            *role_out = (esp_role_t)i;
            return true;
        }
    }
    return false;
}

static esp_status_t literal_hex(parser_t *parser, char *data, int64_t bytes)
{
    ESP_TRY(expect(parser, '"'));
    for (int64_t i = 0; i < bytes; i++)
        if (!hex_byte(parser, &data[i]))
            return FAIL(parser, "%lld bytes in hexadecimal digits expected", (long long)bytes);
    return expect(parser, '"');
}

static esp_status_t literal_list(parser_t *parser, const esp_i_shape_t *shape, void *data)
{
    int64_t elements = esp_i_shape_elements(shape);
    ESP_TRY(expect(parser, '['));
    for (int64_t i = 0; i < elements; i++) {
        bool fits;
        if (i > 0)
            ESP_TRY(expect(parser, ','));
        if (esp_dtype_is_float(shape->dtype)) {
            double value;
            ESP_TRY(real(parser, &value));
            fits = esp_i_literal_set_real(shape->dtype, data, i, value);
        } else {
            int64_t value;
            ESP_TRY(integer(parser, &value));
            fits = esp_i_literal_set_int(shape->dtype, data, i, value);
        }
        if (!fits)
            return FAIL(parser, "not a value of %s", esp_dtype_name(shape->dtype));
    }
    return expect(parser, ']');
}

/* The elements of the shape, if they may be as many as the text has characters; -1 otherwise. */
static int64_t literal_bytes(const parser_t *parser, const esp_i_shape_t *shape)
{
    int64_t bytes = esp_dtype_bytes(shape->dtype), left = 8 * (parser->end - parser->at);
    for (int32_t i = 0; i < shape->rank; i++)
        if (shape->dims[i] < 0 || !esp_i_mul_i64(bytes, shape->dims[i], &bytes) || bytes > left)
            return -1;
    return bytes;
}

static esp_status_t literal(parser_t *parser, const esp_i_shape_t *shape, void **data_out)
{
    int64_t bytes = literal_bytes(parser, shape);
    if (bytes < 0)
        return FAIL(parser, "the literal has fewer elements than its shape");
    *data_out = esp_i_arena_alloc(&parser->arena, esp_i_max_i64(bytes, 1), 1);
    if (*data_out == NULL)
        return esp_i_nomem(parser->diag);
    if (accept(parser, 'x'))
        return literal_hex(parser, *data_out, bytes);
    return literal_list(parser, shape, *data_out);
}

/* ---- attributes --------------------------------------------------------------------------- */

static esp_status_t enum_value(parser_t *parser, const esp_i_field_t *field, esp_attr_t *attr)
{
    span_t name = word(parser);
    for (int32_t i = 0; field->names[i] != NULL; i++) {
        if (span_is(name, field->names[i])) {
            (void)esp_i_field_set(field, attr, 0, i);
            return ESP_OK;
        }
    }
    return FAIL(parser, "unknown value of %s", field->name);
}

static esp_status_t list_value(parser_t *parser, const esp_i_field_t *field, esp_attr_t *attr)
{
    int64_t value;
    for (int32_t i = 0; !accept(parser, ']'); i++) {
        if (i > 0)
            ESP_TRY(expect(parser, ','));
        if (i == field->count)
            return FAIL(parser, "%s has at most %d elements", field->name, (int)field->count);
        ESP_TRY(integer(parser, &value));
        if (!esp_i_field_set(field, attr, i, value))
            return FAIL(parser, "the value of %s is out of range", field->name);
    }
    return ESP_OK;
}

static esp_status_t field_value(parser_t *parser, const esp_i_field_t *field, esp_attr_t *attr)
{
    if (field->type == ESP_I_FIELD_ENUM)
        return enum_value(parser, field, attr);
    if (field->type == ESP_I_FIELD_F64) {
        double value;
        ESP_TRY(real(parser, &value));
        esp_i_field_set_real(field, attr, 0, value);
        return ESP_OK;
    }
    if (field->count > 1 && accept(parser, '['))
        return list_value(parser, field, attr);
    if (field->type == ESP_I_FIELD_LABELS) {
        span_t letters = word(parser);
        if (letters.length > (size_t)field->count)
            return FAIL(parser, "%s has at most %d labels", field->name, (int)field->count);
        for (size_t i = 0; i < letters.length; i++)
            (void)esp_i_field_set(field, attr, (int32_t)i, letters.text[i]);
        return ESP_OK;
    }
    if (field->count > 1)
        return FAIL(parser, "list expected");
    int64_t value;
    ESP_TRY(integer(parser, &value));
    return esp_i_field_set(field, attr, 0, value)
               ? ESP_OK
               : FAIL(parser, "the value of %s is out of range", field->name);
}

static esp_status_t attributes(parser_t *parser, esp_op_kind_t kind, esp_attr_t *attr)
{
    int32_t n;
    const esp_i_field_t *fields = esp_i_attr_fields(kind, &n);
    memset(attr, 0, sizeof *attr);
    if (!accept(parser, '{'))
        return ESP_OK;
    do {
        span_t name = word(parser);
        int32_t i = 0;
        while (i < n && !span_is(name, fields[i].name))
            i++;
        if (i == n)
            return FAIL(parser, "%s has no such attribute", esp_kind_name(kind));
        ESP_TRY(field_value(parser, &fields[i], attr));
    } while (accept(parser, ','));
    return expect(parser, '}');
}

/* ---- lines -------------------------------------------------------------------------------- */

static esp_status_t batch_view(parser_t *parser, esp_view_t *view)
{
    ESP_TRY(expect(parser, '('));
    ESP_TRY(integer(parser, &view->outer));
    ESP_TRY(expect(parser, ','));
    ESP_TRY(integer(parser, &view->extent));
    ESP_TRY(expect(parser, ','));
    ESP_TRY(integer(parser, &view->inner));
    return expect(parser, ')');
}

static esp_status_t tensor_line(parser_t *parser)
{
    const char *name;
    esp_role_t role;
    esp_i_shape_t shape = {0};
    esp_view_t batch = {0};
    void *data = NULL;
    esp_tensor_id_t made;
    ESP_TRY(define(parser, '%'));
    ESP_TRY(string(parser, &name));
    if (!role_of(word(parser), &role))
        return FAIL(parser, "role expected");
    ESP_TRY(dtype_and_dims(parser, &shape));
    if (peek(parser) == 'b') {
        if (!span_is(word(parser), "batch"))
            return FAIL(parser, "batch, literal or end of line expected");
        ESP_TRY(batch_view(parser, &batch));
    }
    if (accept(parser, '='))
        ESP_TRY(literal(parser, &shape, &data));
    ESP_TRY(esp_builder_tensor(parser->builder, name, role, shape.dtype, shape.rank, shape.dims,
                               data, &made, parser->diag));
    if (batch.extent == 0 && batch.outer == 0 && batch.inner == 0)
        return ESP_OK;
    return esp_builder_batch(parser->builder, made, batch, parser->diag);
}

typedef struct result {
    const char *name[ESP_I_MAX_OUT];
    esp_role_t role[ESP_I_MAX_OUT];
    esp_i_shape_t shape[ESP_I_MAX_OUT];
    int32_t n;
} result_t;

static esp_status_t results(parser_t *parser, result_t *result)
{
    ESP_TRY(expect(parser, '-'));
    ESP_TRY(expect(parser, '>'));
    do {
        int32_t i = result->n;
        if (i == ESP_I_MAX_OUT)
            return FAIL(parser, "more than %d results", ESP_I_MAX_OUT);
        ESP_TRY(define(parser, '%'));
        ESP_TRY(string(parser, &result->name[i]));
        const char *before = (peek(parser), parser->at);
        if (!role_of(word(parser), &result->role[i])) {
            parser->at = before;
            result->role[i] = ESP_ROLE_ACTIVATION;
        }
        ESP_TRY(dtype_and_dims(parser, &result->shape[i]));
        result->n++;
    } while (accept(parser, ','));
    return ESP_OK;
}

static esp_status_t operands(parser_t *parser)
{
    parser->inputs.count = 0;
    ESP_TRY(expect(parser, '('));
    while (!accept(parser, ')')) {
        esp_tensor_id_t tensor = ESP_NONE;
        if (parser->inputs.count > 0)
            ESP_TRY(expect(parser, ','));
        if (!accept(parser, '-'))
            ESP_TRY(defined(parser, '%', &tensor));
        if (!esp_vec_push(parser->alloc, &parser->inputs, tensor))
            return esp_i_nomem(parser->diag);
    }
    return ESP_OK;
}

/* [backward | update] [of !label] kind */
static esp_status_t phase_and_kind(parser_t *parser, esp_op_kind_t *kind_out)
{
    esp_phase_t phase = ESP_PHASE_FORWARD;
    esp_op_id_t origin = ESP_NONE;
    span_t name = word(parser);
    if (span_is(name, "backward") || span_is(name, "update")) {
        const char *after = parser->at;
        /* `update (` is the kind of that name, `update update (` that kind in that phase. */
        if (peek(parser) != '(') {
            phase = name.text[0] == 'u' ? ESP_PHASE_UPDATE : ESP_PHASE_BACKWARD;
            name = word(parser);
        } else {
            parser->at = after;
        }
    }
    if (span_is(name, "of")) {
        ESP_TRY(defined(parser, '!', &origin));
        name = word(parser);
    }
    esp_builder_phase(parser->builder, phase, origin);
    for (int32_t i = 0; i < ESP_KIND_COUNT; i++) {
        if (span_is(name, esp_kind_name((esp_op_kind_t)i))) {
            *kind_out = (esp_op_kind_t)i;
            return ESP_OK;
        }
    }
    return FAIL(parser, "kind of op expected");
}

static bool shape_equal(const esp_i_shape_t *x, const esp_i_shape_t *y)
{
    return x->dtype == y->dtype && x->rank == y->rank &&
           memcmp(x->dims, y->dims, (size_t)x->rank * sizeof *x->dims) == 0;
}

static esp_status_t op_line(parser_t *parser)
{
    const char *name;
    esp_op_kind_t kind;
    esp_attr_t attr;
    result_t result = {.n = 0};
    esp_tensor_id_t made[ESP_I_MAX_OUT];
    esp_builder_t *builder = parser->builder;
    ESP_TRY(define(parser, '!'));
    ESP_TRY(string(parser, &name));
    ESP_TRY(phase_and_kind(parser, &kind));
    ESP_TRY(operands(parser));
    ESP_TRY(attributes(parser, kind, &attr));
    ESP_TRY(results(parser, &result));
    ESP_TRY(esp_i_builder_op(builder, kind, &attr, parser->inputs.count, parser->inputs.data, name,
                             result.name, made, parser->diag));
    if (builder->ops.data[builder->ops.count - 1].n_out != result.n)
        return esp_i_fail(parser->diag, ESP_ERR_INVALID, "%s has %d results, not %d",
                          esp_kind_name(kind), (int)builder->ops.data[builder->ops.count - 1].n_out,
                          (int)result.n);
    for (int32_t i = 0; i < result.n; i++) {
        if (!shape_equal(&builder->tensors.data[made[i]].shape, &result.shape[i]))
            return esp_i_fail(parser->diag, ESP_ERR_INVALID,
                              "result %d of op %s has another shape or type than stated", (int)i,
                              name);
        if (esp_builder_role(builder, made[i], result.role[i]) != ESP_OK)
            return FAIL(parser, "an op cannot make a tensor of role %s",
                        esp_role_name(result.role[i]));
    }
    return ESP_OK;
}

static esp_status_t next_line(parser_t *parser)
{
    esp_tensor_id_t before, after;
    ESP_TRY(defined(parser, '%', &before));
    ESP_TRY(defined(parser, '%', &after));
    return esp_builder_next(parser->builder, before, after, parser->diag);
}

static esp_status_t output_line(parser_t *parser)
{
    esp_tensor_id_t tensor;
    ESP_TRY(defined(parser, '%', &tensor));
    return esp_builder_output(parser->builder, tensor) == ESP_OK ? ESP_OK
                                                                 : esp_i_nomem(parser->diag);
}

/* espalier-graph 1 "name" */
static esp_status_t first_line(parser_t *parser)
{
    const char *name;
    int64_t version;
    if (!span_is(word(parser), "espalier-graph"))
        return FAIL(parser, "not a graph: \"espalier-graph\" expected");
    ESP_TRY(integer(parser, &version));
    if (version != 1)
        return esp_i_fail(parser->diag, ESP_ERR_UNSUPPORTED,
                          "graph format %lld; this library reads 1", (long long)version);
    ESP_TRY(string(parser, &name));
    if (esp_builder_create(name, parser->alloc, &parser->builder) != ESP_OK)
        return esp_i_nomem(parser->diag);
    return ESP_OK;
}

static esp_status_t one_line(parser_t *parser)
{
    if (peek(parser) == '\0')
        return ESP_OK;
    if (parser->builder == NULL)
        return first_line(parser);
    span_t what = word(parser);
    if (span_is(what, "tensor"))
        return tensor_line(parser);
    if (span_is(what, "op"))
        return op_line(parser);
    if (span_is(what, "next"))
        return next_line(parser);
    if (span_is(what, "output"))
        return output_line(parser);
    return FAIL(parser, "tensor, op, next or output expected");
}

static esp_status_t all_lines(parser_t *parser)
{
    for (;;) {
        ESP_TRY(one_line(parser));
        if (peek(parser) != '\0')
            return FAIL(parser, "end of line expected");
        while (parser->at < parser->end && *parser->at != '\n')
            parser->at++; /* a comment */
        if (parser->at == parser->end)
            break;
        parser->token = parser->line_start = ++parser->at;
        parser->line++;
    }
    return parser->builder != NULL ? ESP_OK : FAIL(parser, "the file holds no graph");
}

esp_status_t esp_graph_parse(const char *text, size_t length, const char *file,
                             const esp_allocator_t *alloc, esp_graph_t **graph_out,
                             esp_diag_t *diag)
{
    const esp_allocator_t from = esp_i_allocator(alloc);
    parser_t parser = {.at = text,
                       .end = text + length,
                       .line_start = text,
                       .token = text,
                       .line = 1,
                       .diag = diag,
                       .alloc = &from};
    esp_i_arena_init(&parser.arena, &from);
    esp_i_names_init(&parser.tensors, &parser.arena);
    esp_i_names_init(&parser.ops, &parser.arena);
    esp_status_t status = all_lines(&parser);
    if (status == ESP_OK)
        status = esp_builder_freeze(parser.builder, graph_out, diag);
    if (status != ESP_OK) {
        esp_i_diag_file(diag, file != NULL ? file : "");
        esp_i_diag_line(diag, parser.line, parser.token - parser.line_start + 1);
    }
    esp_builder_destroy(parser.builder);
    esp_vec_free(&from, &parser.inputs);
    esp_i_names_fini(&parser.tensors);
    esp_i_names_fini(&parser.ops);
    esp_i_arena_fini(&parser.arena);
    return status;
}
