/*
 * What the descriptors of plain loop-nest kinds share.
 *
 * A *nest* names the loops of an op and says which loop runs over each axis of each operand, as an
 * einsum does. Dimensions (the largest runs of loops that every operand treats alike), the local
 * extents of a split op and the strides of the reference kernel all follow from it, so they cannot
 * disagree. A *chain* is the same for kinds that move a window of one operand into another (slice,
 * pad, concat). Both end in a *walk*: an odometer over at most four buffers.
 */
#ifndef ESP_GRAPH_KINDS_NEST_H
#define ESP_GRAPH_KINDS_NEST_H

#include "graph/kinds/operand.h"

enum { ESP_I_WALK_LEVELS = 3 * ESP_MAX_RANK, ESP_I_WALK_OPERANDS = 4 };

/* for (bool more = esp_i_walk_begin(&w); more; more = esp_i_walk_next(&w)) ... w.offset[operand] */
typedef struct esp_i_walk {
    int32_t n;
    int64_t extent[ESP_I_WALK_LEVELS], index[ESP_I_WALK_LEVELS];
    int64_t stride[ESP_I_WALK_LEVELS][ESP_I_WALK_OPERANDS];
    int64_t offset[ESP_I_WALK_OPERANDS];
} esp_i_walk_t;
bool esp_i_walk_begin(esp_i_walk_t *walk);
bool esp_i_walk_next(esp_i_walk_t *walk);

/* ---- nests --------------------------------------------------------------------------------- */

typedef struct esp_i_nest {
    int32_t n_loops, n_operands;
    int64_t extent[ESP_MAX_LABELS]; /* of each loop; 1 once merged into another or trivial */
    int64_t local[ESP_MAX_LABELS];  /* what of it a split op runs over */
    int32_t rank[ESP_I_WALK_OPERANDS];
    int32_t loop[ESP_I_WALK_OPERANDS][ESP_MAX_RANK]; /* the loop over each axis */
} esp_i_nest_t;
/* Adds a loop, returns its number. n_operands is set by whoever makes the nest. */
int32_t esp_i_nest_loop(esp_i_nest_t *nest, int64_t extent);
/* The next axis of `operand` is run over by `loop`. */
void esp_i_nest_axis(esp_i_nest_t *nest, int32_t operand, int32_t loop);
/* Drops loops of extent 1 and merges loops that follow each other in every operand. */
void esp_i_nest_merge(esp_i_nest_t *nest);
/*
 * Declares every loop of a merged nest; operands [0, n_in) are inputs. An output without the loop
 * sums over it: if `sums` is false such loops are not offered.
 */
void esp_i_nest_dims(const esp_i_nest_t *nest, int32_t n_in, bool sums, esp_i_dims_t *dims);
/* Shrinks the loop that the split of `operand` falls on. All carrying operands may be given. */
void esp_i_nest_split(esp_i_nest_t *nest, int32_t operand, const esp_i_buffer_t *buffer);
/* The walk over the dense local buffers; to be called once all splits were applied. */
void esp_i_nest_walk(const esp_i_nest_t *nest, esp_i_walk_t *walk_out);

/* ---- chains -------------------------------------------------------------------------------- */

/*
 * Consecutive runs of axes, or parts of axes, of a small and a large operand: index i of the small
 * one is start + step * i of the large one. A carried link has the same extent and index in both.
 */
typedef struct esp_i_link {
    int64_t small, large, start, step;
    bool carried;
} esp_i_link_t;
typedef struct esp_i_chain {
    int32_t n;
    esp_i_link_t link[3 * ESP_MAX_RANK];
} esp_i_chain_t;
/* Appends a run that is the same in both; merges with a carried run before it. */
void esp_i_chain_carry(esp_i_chain_t *chain, int64_t extent);
/* Appends an axis whose elements lie at start + step * i; offers what parts of it can be split. */
void esp_i_chain_axis(esp_i_chain_t *chain, int64_t small, int64_t large, int64_t start,
                      int64_t step);
/* Appends an axis seen as [extent / unit][unit], of which the units are moved as a whole. */
void esp_i_chain_units(esp_i_chain_t *chain, int64_t small, int64_t large, int64_t start,
                       int64_t unit);
/* Product of the extents of links [from, to) in the small or the large operand. */
int64_t esp_i_chain_product(const esp_i_chain_t *chain, bool large, int32_t from, int32_t to);
/* Declares every carried link. */
void esp_i_chain_dims(const esp_i_chain_t *chain, int32_t small_operand, int32_t large_operand,
                      esp_i_dims_t *dims);
/* Shrinks the carried link that the split of the small (large) operand falls on. */
void esp_i_chain_split(esp_i_chain_t *chain, bool large, const esp_i_buffer_t *buffer);
/* Operand 0 of the walk is the small one, operand 1 the large one. */
void esp_i_chain_walk(const esp_i_chain_t *chain, esp_i_walk_t *walk_out);

/* An operand without elements: such an op declares no dimension, nothing is gained by splitting it.
 */
bool esp_i_op_empty(const esp_i_op_t *op);

/* ---- checks of infer ------------------------------------------------------------------------- */

/* The shape is within ESP_MAX_ELEMENTS, even with its empty axes taken as 1. */
esp_status_t esp_i_check_shape(const esp_i_shape_t *shape, esp_diag_t *diag);
/* Inputs [from, to) that are present have the dtype of input `from`. */
esp_status_t esp_i_check_dtypes(const esp_i_op_t *op, int32_t from, int32_t to, esp_diag_t *diag);
/* Input `input` is a number, not bool. */
esp_status_t esp_i_check_number(const esp_i_op_t *op, int32_t input, esp_diag_t *diag);
/* Two shapes are equal. `what` and `other` name them. */
esp_status_t esp_i_check_equal(const esp_i_shape_t *shape, const char *what,
                               const esp_i_shape_t *other_shape, const char *other,
                               esp_diag_t *diag);

int64_t esp_i_gcd(int64_t a, int64_t b);
void esp_i_zero(const esp_i_buffer_t *buffer);

#endif
