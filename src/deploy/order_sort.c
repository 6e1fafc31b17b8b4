/* From starts to positions: sorted digit by digit, from the least. */
#include "deploy/order.h"

/* Of the keys, or of the rounds. */
typedef struct digit {
    bool by_round;
    int32_t shift, bits;
} digit_t;

enum { DIGITS = 16, LEAST_BITS = 8 }; /* 1 of the key, 4 of the round, 8 of the time are enough */
typedef struct digits {
    digit_t digit[DIGITS];
    int32_t n;
} digits_t;

static int32_t bits_of(uint64_t key)
{
    return key ? 64 - __builtin_clzll(key) : 0;
}

/* Digits of about the same size for bits [shift, end), with few values for few starts. */
static void digits_add(digits_t *digits, bool by_round, int32_t shift, int32_t end,
                       int32_t n_starts)
{
    int32_t most = bits_of((uint64_t)n_starts);
    most = most < LEAST_BITS ? LEAST_BITS : most < ESP_I_DIGIT_BITS ? most : ESP_I_DIGIT_BITS;
    for (int32_t more = (end - shift + most - 1) / most; more > 0; more--) {
        int32_t bits = (end - shift + more - 1) / more;
        digits->digit[digits->n++] = (digit_t){by_round, shift, bits};
        shift += bits;
    }
}

static inline uint32_t value_of(const esp_i_order_start_t *start, digit_t digit)
{
    uint64_t key = digit.by_round ? (uint64_t)start->round : start->key;
    return (uint32_t)(key >> digit.shift) & ((UINT32_C(1) << digit.bits) - 1);
}

/* count: where the starts of every value of a digit begin. */
static void places_find(struct esp_i_order *o, digit_t digit)
{
    const esp_i_order_start_t *end = o->start + o->n_starts;
    int32_t *count = o->count, before = 0;
    memset(count, 0, sizeof *count << digit.bits);
    for (const esp_i_order_start_t *start = o->start; start < end; start++)
        count[value_of(start, digit)]++;
    for (int32_t value = 0; value < 1 << digit.bits; value++) {
        int32_t these = count[value];
        count[value] = before;
        before += these;
    }
}

static void sort(struct esp_i_order *o, digit_t digit)
{
    const esp_i_order_start_t *end = o->start + o->n_starts;
    esp_i_order_start_t *to = o->spare;
    int32_t *count = o->count;
    places_find(o, digit);
    for (const esp_i_order_start_t *start = o->start; start < end; start++)
        to[count[value_of(start, digit)]++] = *start;
    o->spare = o->start;
    o->start = to;
}

/* The last sort gives the positions. */
static void settle(esp_lowerer_t *lw, digit_t digit)
{
    struct esp_i_order *o = lw->order;
    const esp_i_order_start_t *end = o->start + o->n_starts;
    int32_t *count = o->count, *order = lw->order_ids, *position = lw->position;
    places_find(o, digit);
    for (const esp_i_order_start_t *start = o->start; start < end; start++) {
        int32_t at = o->n_settled + count[value_of(start, digit)]++;
        order[at] = start->task;
        position[start->task] = at;
    }
}

void esp_i_order_settle(esp_lowerer_t *lw)
{
    struct esp_i_order *o = lw->order;
    digits_t digits = {.n = 0};
    int32_t n = o->n_starts, times = 0;
    if (o->rounds > 0) { /* movements first, then by round, then by time */
        times = 1;
        digits_add(&digits, false, 0, times, n);
        digits_add(&digits, true, 0, bits_of((uint64_t)o->rounds), n);
    }
    digits_add(&digits, false, times, bits_of(o->keys | 2), n);
    for (int32_t i = 0; i + 1 < digits.n; i++)
        sort(o, digits.digit[i]);
    settle(lw, digits.digit[digits.n - 1]);
    o->n_settled += n;
    o->n_starts = 0;
    o->keys = 0;
    o->rounds = 0;
}
