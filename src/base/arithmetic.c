/* Apportionment by largest remainder, in exact integers. */
#include "base/base.h"

#include <math.h>

/* Adding 128-bit products keeps quotas exact, so equal weights tie exactly on every machine. */
typedef unsigned __int128 wide_t;

typedef struct apportionment {
    const double *weights;
    int shift;  /* weight * 2^shift, cut to an integer, is at most 2^53 */
    wide_t sum; /* of these integers */
    uint64_t units;
} apportionment_t;

static wide_t scaled_weight(const apportionment_t *a, int64_t i)
{
    return (wide_t)ldexp(a->weights[i], a->shift);
}

static wide_t remainder_of(const apportionment_t *a, int64_t i)
{
    return a->units * scaled_weight(a, i) % a->sum;
}

/* Does i get a spare unit before j? */
static bool comes_before(const apportionment_t *a, int64_t i, int64_t j)
{
    wide_t ri = remainder_of(a, i), rj = remainder_of(a, j);
    return ri != rj ? ri > rj : i < j;
}

/* Restores the heap below `root`: each parent comes after its children. */
static void sift_down(const apportionment_t *a, int64_t *heap, int64_t root, int64_t count)
{
    for (int64_t child; (child = 2 * root + 1) < count; root = child) {
        if (child + 1 < count && comes_before(a, heap[child], heap[child + 1]))
            child++;
        if (comes_before(a, heap[child], heap[root]))
            return;
        int64_t moved = heap[root];
        heap[root] = heap[child];
        heap[child] = moved;
    }
}

/* Heap sort: no memory besides the order itself, and no worst case. */
static void sort_by_remainder(const apportionment_t *a, int64_t *order, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        order[i] = i;
    for (int64_t root = count / 2; root-- > 0;)
        sift_down(a, order, root, count);
    for (int64_t last = count; --last > 0;) {
        int64_t moved = order[0];
        order[0] = order[last];
        order[last] = moved;
        sift_down(a, order, 0, last);
    }
}

static void prepare(apportionment_t *a, int32_t n)
{
    double largest = 0;
    for (int32_t i = 0; i < n; i++) {
        esp_assert(a->weights[i] >= 0 && isfinite(a->weights[i]));
        largest = fmax(largest, a->weights[i]);
    }
    esp_assert(largest > 0);
    int exponent;
    (void)frexp(largest, &exponent);
    a->shift = 53 - exponent;
    for (int32_t i = 0; i < n; i++)
        a->sum += scaled_weight(a, i);
}

void esp_i_apportion(int64_t total, int64_t granule, int32_t n, const double *weights,
                     int64_t *shares_out)
{
    /* While sorting, shares_out holds the order; who gets a spare unit is marked by a high bit. */
    const int64_t mark = INT64_C(1) << 32;

    esp_assert(total >= 0 && granule > 0 && total % granule == 0 && n > 0);
    apportionment_t a = {.weights = weights, .units = (uint64_t)(total / granule)};
    prepare(&a, n);
    int64_t spare = (int64_t)a.units;
    for (int32_t i = 0; i < n; i++)
        spare -= (int64_t)(a.units * scaled_weight(&a, i) / a.sum);
    for (int32_t i = 0; i < n; i++)
        shares_out[i] = 0;
    if (spare > 0)
        sort_by_remainder(&a, shares_out, n);
    for (int64_t rank = 0; rank < spare; rank++)
        shares_out[shares_out[rank] & (mark - 1)] |= mark;
    for (int32_t i = 0; i < n; i++) {
        int64_t whole = (int64_t)(a.units * scaled_weight(&a, i) / a.sum);
        shares_out[i] = (whole + ((shares_out[i] & mark) != 0)) * granule;
    }
}
