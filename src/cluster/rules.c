/* What names, device types and vertices may look like, and the names of the enumerations. */
#include "cluster/cluster.h"

#include <math.h>
#include <string.h>

static const char *const precision_names[] = {
#define ESP_I_PRECISION_TEXT(name, text) text,
    ESP_PRECISION_MAP(ESP_I_PRECISION_TEXT)
#undef ESP_I_PRECISION_TEXT
};

static const char *const vertex_names[] = {
#define ESP_I_VERTEX_TEXT(name, text) text,
    ESP_VERTEX_MAP(ESP_I_VERTEX_TEXT)
#undef ESP_I_VERTEX_TEXT
};

const char *esp_precision_name(esp_precision_t precision)
{
    int32_t i = (int32_t)precision;
    return i >= 0 && i < ESP_PRECISION_COUNT ? precision_names[i] : "?";
}

const char *esp_vertex_kind_name(esp_vertex_kind_t kind)
{
    int32_t i = (int32_t)kind;
    return i >= 0 && i < ESP_VERTEX_KIND_COUNT ? vertex_names[i] : "?";
}

double esp_device_type_flops(const esp_device_type_t *type, esp_precision_t precision)
{
    int32_t i = (int32_t)precision;
    esp_assert(i >= 0 && i < ESP_PRECISION_COUNT);
    double own = type->peak_flops[i];
    return own > 0 ? own : type->peak_flops[ESP_PRECISION_FP32];
}

bool esp_i_vertex_kind_forwards(esp_vertex_kind_t kind)
{
    return kind != ESP_VERTEX_DEVICE && kind != ESP_VERTEX_HUB;
}

static bool name_byte(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c != '\0' && strchr("_.+:#<>/-", c) != NULL);
}

bool esp_i_name_valid(const char *text, int32_t limit)
{
    int32_t n = 0;
    while (n <= limit && name_byte(text[n]))
        n++;
    return n >= 1 && n <= limit && text[n] == '\0';
}

esp_status_t esp_i_name_check(const char *what, const char *text, int32_t limit, esp_diag_t *diag)
{
    if (text != NULL && esp_i_name_valid(text, limit))
        return ESP_OK;
    return esp_i_fail(diag, ESP_ERR_INVALID,
                      "'%.40s' cannot name a %s: names have 1 to %d letters, digits or _.+:#<>/-",
                      text != NULL ? text : "", what, (int)limit);
}

/* Whether value is a whole number in [low, high]: how speeds and bandwidths are kept. */
static bool whole(double value, double low, double high)
{
    return value >= low && value <= high && value == floor(value);
}

static bool printable(const char *text)
{
    for (const unsigned char *c = (const unsigned char *)text; *c != '\0'; c++)
        if (*c < 0x20 || *c == 0x7f)
            return false;
    return true;
}

esp_status_t esp_i_device_type_check(const esp_device_type_t *type, esp_diag_t *diag)
{
    ESP_TRY(esp_i_name_check("device type", type->name, ESP_CLUSTER_MAX_NAME, diag));
    const char *bad = NULL;
    if (type->kind == NULL || (strcmp(type->kind, "gpu") != 0 && strcmp(type->kind, "cpu") != 0))
        bad = "kind is neither gpu nor cpu";
    for (int32_t p = 0; p < ESP_PRECISION_COUNT && bad == NULL; p++)
        if (!whole(type->peak_flops[p], p == ESP_PRECISION_FP32 ? 1 : 0, 1e18))
            bad = "a peak is not a whole number of FLOP/s from 0 (fp32: 1) to 1e18";
    if (bad == NULL &&
        (type->memory_bytes < 1 || type->memory_bytes > ESP_CLUSTER_MAX_MEMORY_BYTES))
        bad = "the memory is out of range";
    if (bad == NULL && !whole(type->memory_bytes_per_s, 1, ESP_CLUSTER_MAX_BYTES_PER_S))
        bad = "the memory bandwidth is not a whole number of bytes per second in range";
    if (bad == NULL && (type->launch_ns < 0 || type->launch_ns > ESP_CLUSTER_MAX_LATENCY_NS))
        bad = "the launch time is out of range";
    if (bad == NULL && !(type->comm_compute_s_per_byte >= 0 && type->comm_compute_s_per_byte <= 1))
        bad = "comm_compute is out of range";
    if (bad == NULL && (type->source == NULL || !printable(type->source)))
        bad = "the source contains a control character";
    if (bad == NULL)
        return ESP_OK;
    return esp_i_fail(diag, ESP_ERR_INVALID, "device type '%s': %s", type->name, bad);
}

/* Levenshtein distance of two short texts; `limit` (> any near distance) if one is long. */
static int32_t distance(const char *a, const char *b, int32_t limit)
{
    enum { LONGEST = 63 };
    size_t n = strlen(a), m = strlen(b);
    int32_t row[LONGEST + 1];
    if (n > LONGEST || m > LONGEST)
        return limit;
    for (size_t j = 0; j <= m; j++)
        row[j] = (int32_t)j;
    for (size_t i = 1; i <= n; i++) {
        int32_t diagonal = row[0];
        row[0] = (int32_t)i;
        for (size_t j = 1; j <= m; j++) {
            int32_t above = row[j], best = diagonal + (a[i - 1] != b[j - 1]);
            best = above + 1 < best ? above + 1 : best;
            row[j] = row[j - 1] + 1 < best ? row[j - 1] + 1 : best;
            diagonal = above;
        }
    }
    return row[m];
}

const char *esp_i_nearest(const char *text, const char *const *candidates, int32_t n)
{
    /* Half of the letters may be wrong: "bandwith", "a100-80" for "a100-sxm-80". */
    int32_t best = (int32_t)(strlen(text) / 2) + 2;
    const char *nearest = NULL;
    for (int32_t i = 0; i < n; i++) {
        int32_t d = distance(text, candidates[i], best);
        if (d < best) {
            best = d;
            nearest = candidates[i];
        }
    }
    return nearest;
}
