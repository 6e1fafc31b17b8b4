/* Matrix products as contractions over labels. */
#include "import/rules.h"

#include <string.h>

/* ---- MatMul ---------------------------------------------------------------------------------- */

/*
 * Drops the batch axes of extent 1 that `other` has with another extent or not at all: an axis that
 * is broadcast simply has no label. keep[d] tells which axes of x stay.
 */
static esp_status_t drop_stretched(esp_i_node_t *node, esp_i_value_t *x, const esp_i_value_t *other,
                                   int32_t matrix_axes, int32_t other_matrix_axes, bool *keep,
                                   esp_i_value_t **out)
{
    int64_t dims[ESP_MAX_RANK];
    int32_t rank = 0, batch = x->rank - matrix_axes, other_batch = other->rank - other_matrix_axes;
    for (int32_t d = 0; d < x->rank; d++) {
        int32_t twin = d - batch + other_batch; /* aligned at the right */
        bool alone = d >= batch || twin < 0;
        keep[d] = alone || x->dims[d] != 1 || other->dims[twin] == 1;
        if (keep[d])
            dims[rank++] = x->dims[d];
    }
    return esp_i_im_reshape(node, x, rank, dims, out);
}

/* Labels 0.. for batch axes by position from the right; i, j, k after them. */
enum { LABEL_I = 8, LABEL_J = 9, LABEL_K = 10 };

static void label_batch(const bool *keep, int32_t batch, int32_t longest, int8_t *labels,
                        int32_t *count)
{
    for (int32_t d = 0; d < batch; d++)
        if (keep[d])
            labels[(*count)++] = (int8_t)(longest - batch + d);
}

static bool has_label(const int8_t *labels, int32_t count, int8_t label)
{
    return count > 0 && memchr(labels, label, (size_t)count) != NULL;
}

/* a[.., i, k] b[.., k, j]; operands of rank 1 have k only. */
esp_status_t esp_i_im_matmul(esp_i_node_t *node, esp_i_value_t *a, esp_i_value_t *b,
                             esp_i_value_t **out)
{
    if (a->rank == 0 || b->rank == 0)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "an operand is a scalar");
    int32_t a_axes = a->rank > 1 ? 2 : 1, b_axes = b->rank > 1 ? 2 : 1;
    int32_t a_batch = a->rank - a_axes, b_batch = b->rank - b_axes;
    int32_t longest = a_batch > b_batch ? a_batch : b_batch;
    int64_t a_k = a->dims[a->rank - 1], b_k = b->dims[b->rank - b_axes];
    bool a_keep[ESP_MAX_RANK] = {false}, b_keep[ESP_MAX_RANK] = {false};
    int8_t la[ESP_MAX_RANK], lb[ESP_MAX_RANK], ly[2 * ESP_MAX_RANK];
    int32_t na = 0, nb = 0, ny = 0;
    esp_i_value_t *a_full = a;
    if (a_k != b_k)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "the inner extents are %lld and %lld",
                          (long long)a_k, (long long)b_k);
    ESP_TRY(drop_stretched(node, a, b, a_axes, b_axes, a_keep, &a));
    ESP_TRY(drop_stretched(node, b, a_full, b_axes, a_axes, b_keep, &b));
    label_batch(a_keep, a_batch, longest, la, &na);
    label_batch(b_keep, b_batch, longest, lb, &nb);
    for (int8_t l = 0; l < (int8_t)longest; l++)
        if (has_label(la, na, l) || has_label(lb, nb, l))
            ly[ny++] = l;
    if (a_axes == 2)
        la[na++] = ly[ny++] = LABEL_I;
    la[na++] = LABEL_K;
    lb[nb++] = LABEL_K;
    if (b_axes == 2)
        lb[nb++] = ly[ny++] = LABEL_J;
    if (ny > ESP_MAX_RANK)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
    return esp_i_im_contract(node, a, la, b, lb, ny, ly, out);
}

esp_status_t esp_i_rule_matmul(esp_i_node_t *node)
{
    ESP_TRY(esp_i_im_need_inputs(node, 2, 2));
    return esp_i_im_matmul(node, node->in[0], node->in[1], &node->out[0]);
}

/* ---- Gemm ------------------------------------------------------------------------------------ */

/* alpha * a' b' + beta * c */
esp_status_t esp_i_rule_gemm(esp_i_node_t *node)
{
    double alpha, beta;
    int64_t trans_a, trans_b;
    esp_i_value_t *y, *c = esp_i_im_in(node, 2);
    ESP_TRY(esp_i_im_need_inputs(node, 2, 3));
    ESP_TRY(esp_i_im_attr_float(node, "alpha", 1, &alpha));
    ESP_TRY(esp_i_im_attr_float(node, "beta", 1, &beta));
    ESP_TRY(esp_i_im_attr_int(node, "transA", 0, &trans_a));
    ESP_TRY(esp_i_im_attr_int(node, "transB", 0, &trans_b));
    esp_i_value_t *a = node->in[0], *b = node->in[1];
    if (a->rank != 2 || b->rank != 2)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "operands of %d and %d axes instead of 2",
                          a->rank, b->rank);
    enum { I, K, J };
    const int8_t la[2] = {trans_a != 0 ? K : I, trans_a != 0 ? I : K};
    const int8_t lb[2] = {trans_b != 0 ? J : K, trans_b != 0 ? K : J};
    const int8_t ly[2] = {I, J};
    ESP_TRY(esp_i_im_contract(node, a, la, b, lb, 2, ly, &y));
    ESP_TRY(esp_i_im_affine(node, y, alpha, 0, &y));
    if (c != NULL && beta != 0) {
        ESP_TRY(esp_i_im_affine(node, c, beta, 0, &c));
        ESP_TRY(esp_i_im_binary(node, ESP_ELT_ADD, y, c, &y));
    }
    node->out[0] = y;
    return ESP_OK;
}

/* ---- Einsum ---------------------------------------------------------------------------------- */

typedef struct term {
    int8_t labels[ESP_MAX_RANK];
    int32_t rank;
} term_t;

enum { MAX_LETTERS = ESP_MAX_LABELS };

/* Index of a letter, in order of first appearance; -1: too many. */
static int8_t letter_index(char *letters, int32_t *n, char letter)
{
    for (int32_t k = 0; k < *n; k++)
        if (letters[k] == letter)
            return (int8_t)k;
    if (*n == MAX_LETTERS)
        return -1;
    letters[*n] = letter;
    return (int8_t)(*n)++;
}

/* Axes that "..." stands for in a term of `rank` axes, which starts at `at`. */
static int32_t axes_of_dots(esp_i_str_t text, int64_t at, int32_t rank)
{
    for (; at < text.length && text.data[at] != ',' && text.data[at] != '-'; at++)
        rank -= text.data[at] != ' ' && text.data[at] != '.';
    return rank > 0 ? rank : 0;
}

/*
 * Reads "ij" up to a comma, an arrow or the end. "..." becomes labels '7' and down, aligned at the
 * right; `dots`: how many.
 */
static esp_status_t read_term(esp_i_node_t *node, esp_i_str_t text, int64_t *at, int32_t dots,
                              char *letters, int32_t *n_letters, term_t *term)
{
    term->rank = 0;
    for (; *at < text.length && text.data[*at] != ',' && text.data[*at] != '-'; (*at)++) {
        char letter = text.data[*at];
        if (letter == ' ')
            continue;
        if (letter == '.') {
            *at += text.length - *at > 2 ? 2 : 0;
            for (int32_t d = dots; d > 0; d--) {
                int8_t label = letter_index(letters, n_letters, (char)('8' - d));
                if (label < 0 || term->rank == ESP_MAX_RANK)
                    return esp_i_fail(node->diag, ESP_ERR_LIMIT,
                                      "the equation has too many labels");
                term->labels[term->rank++] = label;
            }
            continue;
        }
        bool is_letter = (letter >= 'a' && letter <= 'z') || (letter >= 'A' && letter <= 'Z');
        if (!is_letter)
            return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                              "'%c' in an equation: only letters are supported", letter);
        int8_t label = letter_index(letters, n_letters, letter);
        if (label < 0 || term->rank == ESP_MAX_RANK)
            return esp_i_fail(node->diag, ESP_ERR_LIMIT, "the equation has too many labels");
        if (has_label(term->labels, term->rank, label))
            return esp_i_fail(node->diag, ESP_ERR_UNSUPPORTED,
                              "label '%c' twice in one operand (a diagonal)", letter);
        term->labels[term->rank++] = label;
    }
    return ESP_OK;
}

/* Sums away the labels of x that nobody needs any more. `needed`: bit per label. */
static esp_status_t sum_unneeded(esp_i_node_t *node, esp_i_value_t **x, term_t *term,
                                 uint32_t needed)
{
    uint32_t axes = 0;
    int32_t kept = 0;
    for (int32_t d = 0; d < term->rank; d++) {
        if (needed >> term->labels[d] & 1)
            term->labels[kept++] = term->labels[d];
        else
            axes |= 1u << d;
    }
    term->rank = kept;
    return esp_i_im_reduce(node, ESP_REDUCE_SUM, *x, axes, false, x);
}

static uint32_t mask_of(const term_t *term)
{
    uint32_t mask = 0;
    for (int32_t d = 0; d < term->rank; d++)
        mask |= 1u << term->labels[d];
    return mask;
}

/* Contracts x with the next operand, keeping what is needed later. */
static esp_status_t join(esp_i_node_t *node, esp_i_value_t **x, term_t *term, esp_i_value_t *next,
                         term_t *next_term, uint32_t needed)
{
    term_t y = {.rank = 0};
    ESP_TRY(sum_unneeded(node, x, term, needed | mask_of(next_term)));
    ESP_TRY(sum_unneeded(node, &next, next_term, needed | mask_of(term)));
    for (int32_t d = 0; d < term->rank + next_term->rank; d++) {
        int8_t label = d < term->rank ? term->labels[d] : next_term->labels[d - term->rank];
        if (!(needed >> label & 1) || has_label(y.labels, y.rank, label))
            continue;
        if (y.rank == ESP_MAX_RANK)
            return esp_i_fail(node->diag, ESP_ERR_LIMIT, "more than %d axes", ESP_MAX_RANK);
        y.labels[y.rank++] = label;
    }
    ESP_TRY(
        esp_i_im_contract(node, *x, term->labels, next, next_term->labels, y.rank, y.labels, x));
    *term = y;
    return ESP_OK;
}

/* Permutes x into the order of the result. */
static esp_status_t arrange(esp_i_node_t *node, esp_i_value_t *x, const term_t *term,
                            const term_t *result)
{
    int32_t perm[ESP_MAX_RANK];
    if (term->rank != result->rank)
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "a label of the result is in no operand");
    for (int32_t d = 0; d < result->rank; d++) {
        const int8_t *at = memchr(term->labels, result->labels[d], (size_t)term->rank);
        if (at == NULL)
            return esp_i_fail(node->diag, ESP_ERR_INVALID,
                              "a label of the result is in no operand");
        perm[d] = (int32_t)(at - term->labels);
    }
    return esp_i_im_transpose(node, x, perm, &node->out[0]);
}

enum { MAX_TERMS = 8 };

/* Without an arrow: the labels that appear once, in alphabetical order. */
static void implied_result(const term_t *terms, int32_t n, const char *letters, term_t *result)
{
    result->rank = 0;
    for (int32_t c = 0; c < 128; c++) {
        for (int32_t l = 0; l < MAX_LETTERS; l++) {
            int32_t uses = 0;
            for (int32_t t = 0; t < n && letters[l] == (char)c; t++)
                uses += has_label(terms[t].labels, terms[t].rank, (int8_t)l);
            if (uses == 1 && result->rank < ESP_MAX_RANK)
                result->labels[result->rank++] = (int8_t)l;
        }
    }
}

static esp_status_t read_equation(esp_i_node_t *node, term_t *terms, term_t *result)
{
    char letters[MAX_LETTERS] = {0};
    int32_t n_letters = 0, most = 0;
    int64_t at = 0;
    esp_i_str_t text;
    ESP_TRY(esp_i_im_attr_text(node, "equation", NULL, &text));
    for (int32_t t = 0; t < node->n_in; t++) {
        int32_t dots = axes_of_dots(text, at, node->in[t]->rank);
        most = dots > most ? dots : most;
        ESP_TRY(read_term(node, text, &at, dots, letters, &n_letters, &terms[t]));
        bool last = t == node->n_in - 1;
        if (terms[t].rank != node->in[t]->rank)
            return esp_i_fail(node->diag, ESP_ERR_INVALID,
                              "the equation has %d labels for input %d, which has %d axes",
                              terms[t].rank, t, node->in[t]->rank);
        if (!last && (at == text.length || text.data[at++] != ','))
            return esp_i_fail(node->diag, ESP_ERR_INVALID, "the equation has too few operands");
    }
    if (at == text.length) {
        implied_result(terms, node->n_in, letters, result);
        return ESP_OK;
    }
    if (at + 1 >= text.length || text.data[at] != '-' || text.data[at + 1] != '>')
        return esp_i_fail(node->diag, ESP_ERR_INVALID, "the equation has too many operands");
    at += 2;
    return read_term(node, text, &at, most, letters, &n_letters, result);
}

esp_status_t esp_i_rule_einsum(esp_i_node_t *node)
{
    term_t terms[MAX_TERMS] = {0}, result = {0};
    if (node->n_in < 1 || node->n_in > MAX_TERMS)
        return esp_i_fail(node->diag, ESP_ERR_LIMIT, "%d operands (1 to %d are supported)",
                          node->n_in, MAX_TERMS);
    ESP_TRY(esp_i_im_need_inputs(node, node->n_in, MAX_TERMS));
    ESP_TRY(read_equation(node, terms, &result));
    esp_i_value_t *x = node->in[0];
    for (int32_t t = 1; t < node->n_in; t++) {
        uint32_t needed = mask_of(&result);
        for (int32_t later = t + 1; later < node->n_in; later++)
            needed |= mask_of(&terms[later]);
        ESP_TRY(join(node, &x, &terms[0], node->in[t], &terms[t], needed));
    }
    ESP_TRY(sum_unneeded(node, &x, &terms[0], mask_of(&result)));
    return arrange(node, x, &terms[0], &result);
}
