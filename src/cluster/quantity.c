/*
 * Numbers with units. Everything is integer arithmetic on decimal digits, so that no locale, no
 * floating-point parser and no rounding mode has a say: value = mantissa * unit / (10^decimals).
 */
#include "cluster/yaml.h"
#include "cluster/cluster.h"

#include <string.h>

__extension__ typedef unsigned __int128 wide_t;

typedef struct unit {
    const char *text;
    esp_i_quantity_t quantity;
    int64_t numerator;
    int32_t denominator;
} unit_t;

#define KILO INT64_C(1000)
#define MEGA INT64_C(1000000)
#define GIGA INT64_C(1000000000)
#define TERA INT64_C(1000000000000)
#define PETA INT64_C(1000000000000000)

static const unit_t units[] = {
    {"B", ESP_I_SIZE, 1, 1},
    {"kB", ESP_I_SIZE, KILO, 1},
    {"MB", ESP_I_SIZE, MEGA, 1},
    {"GB", ESP_I_SIZE, GIGA, 1},
    {"TB", ESP_I_SIZE, TERA, 1},
    {"KiB", ESP_I_SIZE, INT64_C(1) << 10, 1},
    {"MiB", ESP_I_SIZE, INT64_C(1) << 20, 1},
    {"GiB", ESP_I_SIZE, INT64_C(1) << 30, 1},
    {"TiB", ESP_I_SIZE, INT64_C(1) << 40, 1},
    {"B/s", ESP_I_BANDWIDTH, 1, 1},
    {"kB/s", ESP_I_BANDWIDTH, KILO, 1},
    {"MB/s", ESP_I_BANDWIDTH, MEGA, 1},
    {"GB/s", ESP_I_BANDWIDTH, GIGA, 1},
    {"TB/s", ESP_I_BANDWIDTH, TERA, 1},
    {"KiB/s", ESP_I_BANDWIDTH, INT64_C(1) << 10, 1},
    {"MiB/s", ESP_I_BANDWIDTH, INT64_C(1) << 20, 1},
    {"GiB/s", ESP_I_BANDWIDTH, INT64_C(1) << 30, 1},
    {"TiB/s", ESP_I_BANDWIDTH, INT64_C(1) << 40, 1},
    {"bit/s", ESP_I_BANDWIDTH, 1, 8},
    {"kbit/s", ESP_I_BANDWIDTH, KILO, 8},
    {"Mbit/s", ESP_I_BANDWIDTH, MEGA, 8},
    {"Gbit/s", ESP_I_BANDWIDTH, GIGA, 8},
    {"Tbit/s", ESP_I_BANDWIDTH, TERA, 8},
    {"ns", ESP_I_TIME, 1, 1},
    {"us", ESP_I_TIME, KILO, 1},
    {"ms", ESP_I_TIME, MEGA, 1},
    {"s", ESP_I_TIME, GIGA, 1},
    {"FLOP/s", ESP_I_SPEED, 1, 1},
    {"MFLOP/s", ESP_I_SPEED, MEGA, 1},
    {"GFLOP/s", ESP_I_SPEED, GIGA, 1},
    {"TFLOP/s", ESP_I_SPEED, TERA, 1},
    {"PFLOP/s", ESP_I_SPEED, PETA, 1},
    {"as/B", ESP_I_TIME_PER_BYTE, 1, 1},
    {"fs/B", ESP_I_TIME_PER_BYTE, KILO, 1},
    {"ps/B", ESP_I_TIME_PER_BYTE, MEGA, 1},
    {"ns/B", ESP_I_TIME_PER_BYTE, GIGA, 1},
};
enum { N_UNITS = sizeof units / sizeof units[0] };

static const struct {
    const char *what, *examples;
} quantities[] = {
    [ESP_I_SIZE] = {"size", "'32 GiB' or '500 MB'"},
    [ESP_I_BANDWIDTH] = {"bandwidth", "'25 Gbit/s' or '300 GB/s'"},
    [ESP_I_TIME] = {"time", "'5 us' or '800 ns'"},
    [ESP_I_SPEED] = {"speed", "'30 TFLOP/s' or '900 GFLOP/s'"},
    [ESP_I_TIME_PER_BYTE] = {"time per byte", "'100 ps/B'"},
};
_Static_assert(sizeof quantities / sizeof quantities[0] == ESP_I_QUANTITY_COUNT,
               "one row per quantity");

enum { MOST_DIGITS = 18 }; /* the mantissa fits into 60 bits, times any unit into 110 */

typedef struct decimal {
    bool negative;
    int32_t digits;   /* seen, leading zeros not counted */
    int32_t decimals; /* after the point */
    uint64_t mantissa;
} decimal_t;

/* Reads "12", "1.5", "-3"; the rest of the text, or NULL if there is no number. */
static const char *read_decimal(const char *text, decimal_t *out)
{
    *out = (decimal_t){.negative = text[0] == '-'};
    text += text[0] == '-' || text[0] == '+';
    int32_t seen = 0;
    bool point = false;
    for (; (*text >= '0' && *text <= '9') || (*text == '.' && !point); text++) {
        if (*text == '.') {
            point = true;
            continue;
        }
        seen++;
        out->decimals += point;
        out->digits += out->digits > 0 || *text != '0' || point;
        if (out->digits <= MOST_DIGITS)
            out->mantissa = 10 * out->mantissa + (uint64_t)(*text - '0');
    }
    return seen > 0 ? text : NULL;
}

/* mantissa * numerator / (denominator * 10^decimals), half up; false: beyond int64_t. */
static bool scale(const decimal_t *number, int64_t numerator, int32_t denominator,
                  int64_t *value_out)
{
    wide_t divisor = (wide_t)denominator;
    for (int32_t i = 0; i < number->decimals; i++)
        divisor *= 10;
    wide_t value = ((wide_t)number->mantissa * (wide_t)numerator + divisor / 2) / divisor;
    if (value > (wide_t)INT64_MAX)
        return false;
    *value_out = (int64_t)value;
    return true;
}

static const unit_t *find_unit(const char *text)
{
    for (int32_t i = 0; i < N_UNITS; i++)
        if (strcmp(units[i].text, text) == 0)
            return &units[i];
    return NULL;
}

/* The text is no quantity of the kind: says what it is instead. */
static esp_status_t bad_unit(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char *unit_text, const unit_t *unit, esp_i_quantity_t quantity)
{
    const char *what = quantities[quantity].what, *examples = quantities[quantity].examples;
    if (unit_text[0] == '\0')
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                               "'%.40s' has no unit; write a %s such as %s", node->text, what,
                               examples);
    if (unit != NULL)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                               "'%.40s' is a %s, but a %s is needed, such as %s", node->text,
                               quantities[unit->quantity].what, what, examples);
    return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                           "the unit '%.20s' is not known; write a %s such as %s", unit_text, what,
                           examples);
}

static esp_status_t out_of_range(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                 esp_i_quantity_t quantity, bool small)
{
    return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID, "'%.40s' is too %s; write a %s such as %s",
                           node->text, small ? "small" : "large", quantities[quantity].what,
                           quantities[quantity].examples);
}

esp_status_t esp_i_yaml_quantity(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                 esp_i_quantity_t quantity, int64_t low, int64_t high,
                                 int64_t *value_out)
{
    const char *text;
    decimal_t number;
    ESP_TRY(esp_i_yaml_text(yaml, node, &text));
    const char *rest = read_decimal(text, &number);
    if (rest == NULL)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                               "'%.40s' is not a number with a unit; write a %s such as %s", text,
                               quantities[quantity].what, quantities[quantity].examples);
    while (*rest == ' ')
        rest++;
    const unit_t *unit = find_unit(rest);
    if (unit == NULL || unit->quantity != quantity)
        return bad_unit(yaml, node, rest, unit, quantity);
    if (number.negative)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID,
                               "'%.40s' is negative; write a %s such as %s", text,
                               quantities[quantity].what, quantities[quantity].examples);
    if (number.digits > MOST_DIGITS || number.decimals > MOST_DIGITS)
        return esp_i_yaml_fail(
            yaml, node, ESP_ERR_INVALID, "'%.40s' has more than %d digits; write a %s such as %s",
            text, (int)MOST_DIGITS, quantities[quantity].what, quantities[quantity].examples);
    int64_t value;
    if (!scale(&number, unit->numerator, unit->denominator, &value) || value > high)
        return out_of_range(yaml, node, quantity, false);
    if (value < low)
        return out_of_range(yaml, node, quantity, true);
    *value_out = value;
    return ESP_OK;
}

esp_status_t esp_i_yaml_ratio(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node, int64_t low,
                              int64_t high, int64_t *thousandths_out)
{
    const char *text;
    decimal_t number;
    int64_t value = 0;
    ESP_TRY(esp_i_yaml_text(yaml, node, &text));
    const char *rest = read_decimal(text, &number);
    if (rest == NULL || rest[0] != '\0' || number.negative || number.digits > MOST_DIGITS ||
        number.decimals > MOST_DIGITS || !scale(&number, 1000, 1, &value) || value < low ||
        value > high)
        return esp_i_yaml_fail(yaml, node, ESP_ERR_INVALID, "'%.40s' is not a number from %d to %d",
                               text, (int)(low / 1000), (int)(high / 1000));
    *thousandths_out = value;
    return ESP_OK;
}
