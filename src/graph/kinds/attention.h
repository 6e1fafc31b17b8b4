/*
 * The axes of attention, for the two files that hold it: attention.c declares the kinds,
 * attention_kernel.c computes them.
 *
 * Every operand has one of six layouts, which are lists of labels. A *run* is a loop over batch
 * labels (samples, heads) that lie side by side in all layouts.
 */
#ifndef ESP_GRAPH_KINDS_ATTENTION_H
#define ESP_GRAPH_KINDS_ATTENTION_H

#include "graph/kinds/operand.h"

/* ROW: one number per row of scores; it has the labels of the scores but the key. */
enum { ESP_I_ATT_Q, ESP_I_ATT_K, ESP_I_ATT_V, ESP_I_ATT_MASK, ESP_I_ATT_Y, ESP_I_ATT_ROW };
enum { ESP_I_ATT_LAYOUTS = 6, ESP_I_ATT_AXES = ESP_MAX_RANK + 4 };
/* Axes of every attention: of q k summed over, and of v and y. The runs follow. */
enum { ESP_I_ATT_QUERY, ESP_I_ATT_KEY, ESP_I_ATT_DEPTH, ESP_I_ATT_WIDTH, ESP_I_ATT_RUNS };

/* Operands of the two kinds. */
enum { ESP_I_ATT_MASK_IN = 3, ESP_I_ATT_INPUTS };
enum { ESP_I_ATT_G_Y = 3, ESP_I_ATT_G_TOP, ESP_I_ATT_G_SUM, ESP_I_ATT_G_DY, ESP_I_ATT_G_MASK };

typedef struct esp_i_att {
    int32_t n; /* axes */
    int8_t label[ESP_I_ATT_AXES];
    int64_t extent[ESP_I_ATT_AXES];
    int64_t stride[ESP_I_ATT_AXES][ESP_I_ATT_LAYOUTS]; /* 0: not in that layout, or broadcast */
} esp_i_att_t;

/* Shapes of q, k, v and mask: rank and extents; a mask of rank -1 is none. */
typedef struct esp_i_att_shapes {
    int32_t rank[4];
    const int64_t *dims[4];
} esp_i_att_shapes_t;

/* Finds the axes. Errors say what does not fit. */
esp_status_t esp_i_att_axes(const esp_attr_t *attr, const esp_i_att_shapes_t *shapes,
                            esp_i_att_t *att_out, esp_diag_t *diag);
/* Strides of the whole tensors; drops batch axes of extent 1 and merges the others into runs. */
void esp_i_att_runs(const esp_attr_t *attr, const esp_i_att_shapes_t *shapes, esp_i_att_t *att);
/* Elements of a tensor in that layout. */
int64_t esp_i_att_elements(const esp_i_att_t *att, int32_t layout);

/* The axes as this share of a kernel holds them; `mask`: its input, if there (data not NULL). */
esp_i_att_t esp_i_att_of(const esp_i_kernel_t *kernel, int32_t mask);
/* Heads of all samples, of this share. */
int64_t esp_i_att_heads(const esp_i_att_t *att);

void esp_i_att_kernel(const esp_i_kernel_t *kernel);
void esp_i_att_grad_kernel(const esp_i_kernel_t *kernel);

#endif
