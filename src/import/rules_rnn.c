/*
 * LSTM, GRU and RNN: one core op per direction. ONNX keeps an axis of directions in weights, states
 * and results, which is cut apart before and joined after.
 */
#include "import/rules.h"

#include <string.h>

/* Inputs of the ONNX ops. */
enum { X, W, R, B, SEQUENCE_LENS, INITIAL_H, INITIAL_C, PEEPHOLES };

enum { MAX_OUTPUTS = 5, MAX_STATES = 2 };

typedef struct layer {
    int32_t directions, states; /* states: h, and c of an LSTM */
    esp_attr_t attr[2];         /* of each direction */
} layer_t;

/* ---- attributes ------------------------------------------------------------------------------ */

static esp_status_t refuse(esp_i_node_t *node, const char *what)
{
    return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "%s is not supported", what);
}

static esp_status_t check_variant(esp_i_node_t *node)
{
    esp_i_pb_attribute_t clip;
    bool clipped;
    int64_t layout, coupled;
    ESP_TRY(esp_i_im_attr_find(node, "clip", ESP_I_PB_FLOAT, &clip, &clipped));
    ESP_TRY(esp_i_im_attr_int(node, "layout", 0, &layout));
    ESP_TRY(esp_i_im_attr_int(node, "input_forget", 0, &coupled));
    if (clipped)
        return refuse(node, "clip");
    if (layout != 0)
        return refuse(node, "layout 1, the batch first,");
    if (coupled != 0)
        return refuse(node, "input_forget");
    if (esp_i_im_in(node, SEQUENCE_LENS) != NULL)
        return refuse(node, "input sequence_lens");
    if (esp_i_im_in(node, PEEPHOLES) != NULL)
        return refuse(node, "input P (peepholes)");
    return ESP_OK;
}

static esp_status_t read_direction(esp_i_node_t *node, layer_t *layer)
{
    esp_i_str_t direction;
    ESP_TRY(esp_i_im_attr_text(node, "direction", "forward", &direction));
    layer->directions = 1;
    if (esp_i_str_is(direction, "reverse")) {
        layer->attr[0].recurrent.reverse = 1;
    } else if (esp_i_str_is(direction, "bidirectional")) {
        layer->directions = 2;
        layer->attr[1].recurrent.reverse = 1;
    } else if (!esp_i_str_is(direction, "forward")) {
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "direction is '%.*s'",
                          (int)esp_i_min_i64(direction.length, 40), direction.data);
    }
    return ESP_OK;
}

static int32_t activations_of(const layer_t *layer, int32_t kind)
{
    return layer->states == MAX_STATES ? 3 : kind == ESP_KIND_GRU ? 2 : 1;
}

/* Activation `count` of all: the default, or relu instead of tanh in an RNN. */
static esp_status_t read_activation(esp_i_node_t *node, layer_t *layer, int32_t count,
                                    esp_i_str_t name)
{
    const esp_op_kind_t kind = (esp_op_kind_t)node->op->code;
    const int32_t per_direction = activations_of(layer, node->op->code);
    if (count >= layer->directions * per_direction)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "more than %d activations",
                          layer->directions * per_direction);
    const bool gate = kind != ESP_KIND_RNN && count % per_direction == 0;
    const bool relu = kind == ESP_KIND_RNN && esp_i_str_is(name, "Relu");
    layer->attr[count / per_direction].recurrent.relu = relu;
    if (relu || esp_i_str_is(name, gate ? "Sigmoid" : "Tanh"))
        return ESP_OK;
    return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED, "activation %d is '%.*s': %s is supported",
                      count, (int)esp_i_min_i64(name.length, 40), name.data,
                      gate                   ? "Sigmoid"
                      : kind == ESP_KIND_RNN ? "Tanh or Relu"
                                             : "Tanh");
}

static esp_status_t read_activations(esp_i_node_t *node, layer_t *layer)
{
    esp_i_pb_attribute_t attr;
    esp_i_wire_t item;
    bool found;
    int32_t count = 0;
    ESP_TRY(esp_i_im_attr_find(node, "activations", ESP_I_PB_STRINGS, &attr, &found));
    if (!found)
        return ESP_OK;
    while (esp_i_pb_each(&attr.body, ESP_I_ATTRIBUTE_STRINGS, &item, node->diag))
        ESP_TRY(read_activation(node, layer, count++, esp_i_wire_str(&item)));
    ESP_TRY(attr.body.status);
    const int32_t wanted = layer->directions * activations_of(layer, node->op->code);
    if (count > 0 && count != wanted)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "%d activations instead of %d", count,
                          wanted);
    return ESP_OK;
}

static esp_status_t read_layer(esp_i_node_t *node, layer_t *layer)
{
    int64_t linear, hidden;
    *layer = (layer_t){.states = node->op->code == ESP_KIND_LSTM ? 2 : 1};
    ESP_TRY(esp_i_im_need_inputs(node, 3, layer->states == 2 ? PEEPHOLES + 1 : INITIAL_H + 1));
    ESP_TRY(check_variant(node));
    ESP_TRY(read_direction(node, layer));
    ESP_TRY(read_activations(node, layer));
    ESP_TRY(esp_i_im_attr_int(node, "linear_before_reset", 0, &linear));
    layer->attr[0].recurrent.linear_before_reset = linear != 0;
    layer->attr[1].recurrent.linear_before_reset = linear != 0;
    const esp_i_value_t *r = node->in[R];
    ESP_TRY(esp_i_im_attr_int(node, "hidden_size", r->rank == 3 ? r->dims[2] : 0, &hidden));
    if (r->rank == 3 && hidden != r->dims[2])
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "hidden_size is %lld, R has %lld",
                          (long long)hidden, (long long)r->dims[2]);
    return ESP_OK;
}

/* ---- one direction --------------------------------------------------------------------------- */

/* Input `index` without the axis of directions; NULL where it is absent. */
static esp_status_t part_of(esp_i_node_t *node, const layer_t *layer, int32_t index,
                            int32_t direction, esp_i_value_t **out)
{
    esp_i_value_t *v = esp_i_im_in(node, index);
    *out = NULL;
    if (v == NULL)
        return ESP_OK;
    if (v->rank < 1 || v->dims[0] != layer->directions)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "axis 0 of input %d is not %d direction%s",
                          index, layer->directions, layer->directions > 1 ? "s" : "");
    if (layer->directions > 1)
        ESP_TRY(esp_i_im_slice(node, v, 0, direction, 1, 1, &v));
    return esp_i_im_reshape(node, v, v->rank - 1, v->dims + 1, out);
}

/* The samples are axis 1 of x and y and axis 0 of the states. */
static esp_status_t track(esp_i_node_t *node, const layer_t *layer, esp_i_value_t *const *out)
{
    esp_i_track_t track = esp_i_im_track_of(node->im, node->in[X]);
    if (track.axis != 1)
        return ESP_OK;
    ESP_TRY(esp_i_im_track_set(node->im, out[0]->tensor, track));
    track.axis = 0;
    for (int32_t k = 1; k <= layer->states; k++)
        ESP_TRY(esp_i_im_track_set(node->im, out[k]->tensor, track));
    return ESP_OK;
}

/* y [t, 1, b, h] and the states [1, b, h] of one direction */
static esp_status_t run(esp_i_node_t *node, const layer_t *layer, int32_t direction,
                        esp_i_value_t **results)
{
    esp_i_value_t *in[6] = {node->in[X]}, *out[MAX_OUTPUTS];
    for (int32_t k = W; k <= B; k++)
        ESP_TRY(part_of(node, layer, k, direction, &in[k]));
    for (int32_t k = 0; k < layer->states; k++)
        ESP_TRY(part_of(node, layer, INITIAL_H + k, direction, &in[B + 1 + k]));
    ESP_TRY(esp_i_im_emit(node, (esp_op_kind_t)node->op->code, &layer->attr[direction],
                          B + 1 + layer->states, in, out));
    ESP_TRY(track(node, layer, out));
    const int64_t *y = out[0]->dims;
    const int64_t dims[4] = {y[0], 1, y[1], y[2]};
    ESP_TRY(esp_i_im_reshape(node, out[0], 4, dims, &results[0]));
    for (int32_t k = 1; k <= layer->states; k++)
        ESP_TRY(esp_i_im_reshape(node, out[k], 3, dims + 1, &results[k]));
    return ESP_OK;
}

/* code: the core kind */
esp_status_t esp_i_rule_recurrent(esp_i_node_t *node)
{
    layer_t layer;
    esp_i_value_t *results[2][1 + MAX_STATES];
    ESP_TRY(read_layer(node, &layer));
    for (int32_t direction = 0; direction < layer.directions; direction++)
        ESP_TRY(run(node, &layer, direction, results[direction]));
    for (int32_t k = 0; k <= layer.states && k < node->n_out; k++) {
        esp_i_value_t *const parts[2] = {results[0][k], results[layer.directions - 1][k]};
        esp_attr_t attr = {.axis.axis = k == 0 ? 1 : 0};
        node->out[k] = parts[0];
        if (layer.directions > 1)
            ESP_TRY(esp_i_im_emit(node, ESP_KIND_CONCAT, &attr, 2, parts, &node->out[k]));
    }
    return ESP_OK;
}
