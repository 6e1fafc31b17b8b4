/* Attributes by name: which members of esp_attr_t a kind has. For the text form and for comparison.
 */
#ifndef ESP_GRAPH_ATTR_H
#define ESP_GRAPH_ATTR_H

#include "graph/kind.h"

typedef enum esp_i_field_type {
    ESP_I_FIELD_I32,
    ESP_I_FIELD_I64,
    ESP_I_FIELD_F64,
    ESP_I_FIELD_LABELS, /* int8_t; 0 ends the list */
    ESP_I_FIELD_ENUM,
} esp_i_field_type_t;

typedef struct esp_i_field {
    const char *name;
    esp_i_field_type_t type;
    size_t offset;
    int32_t count;            /* elements; 1: not a list */
    const char *const *names; /* ENUM: of the values, NULL at the end */
} esp_i_field_t;

/* The fields of a kind in a fixed order; count_out may be 0. */
const esp_i_field_t *esp_i_attr_fields(esp_op_kind_t kind, int32_t *count_out);

/* The same attributes with every byte that is no field of the kind set to 0. */
esp_attr_t esp_i_attr_clean(esp_op_kind_t kind, const esp_attr_t *attr);

/* Every enumeration is one of its values and no number is NaN, whatever the kind makes of them. */
esp_status_t esp_i_attr_check(esp_op_kind_t kind, const esp_attr_t *attr, esp_diag_t *diag);

int64_t esp_i_field_get(const esp_i_field_t *field, const esp_attr_t *attr, int32_t i);
/* False if the value does not fit. */
bool esp_i_field_set(const esp_i_field_t *field, esp_attr_t *attr, int32_t i, int64_t value);
double esp_i_field_get_real(const esp_i_field_t *field, const esp_attr_t *attr, int32_t i);
void esp_i_field_set_real(const esp_i_field_t *field, esp_attr_t *attr, int32_t i, double value);

#endif
