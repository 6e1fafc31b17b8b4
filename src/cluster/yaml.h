/*
 * YAML documents as trees, with the place of every node, and typed access that reports errors
 * there.
 *
 * The dialect is YAML without anchors, aliases, tags, several documents and control characters:
 * nothing that makes a small file large or says what a value is in a second way.
 */
#ifndef ESP_CLUSTER_YAML_H
#define ESP_CLUSTER_YAML_H

#include "base/base.h"

enum {
    ESP_I_YAML_MAX_DEPTH = 16,
    ESP_I_YAML_MAX_KEYS = 512,      /* of one mapping */
    ESP_I_YAML_MAX_NODES = 1 << 20, /* of one document, keys not counted */
    ESP_I_YAML_MAX_TEXT = 4096      /* bytes of one scalar */
};

typedef enum esp_i_yaml_kind {
    ESP_I_YAML_SCALAR,
    ESP_I_YAML_LIST,
    ESP_I_YAML_MAP
} esp_i_yaml_kind_t;

typedef struct esp_i_yaml_node {
    esp_i_yaml_kind_t kind;
    int32_t line, column;         /* of the node; 1-based, columns in characters */
    int32_t key_line, key_column; /* of the key, for an entry of a mapping */
    int32_t n_children;
    int32_t index;    /* in its parent */
    const char *key;  /* entry of a mapping; else NULL */
    const char *text; /* scalar: UTF-8 without control characters, NUL-terminated */
    struct esp_i_yaml_node *parent, *first, *last, *next;
} esp_i_yaml_node_t;

/* A document and where its errors go. The arena owns the tree. */
typedef struct esp_i_yaml {
    esp_i_arena_t *arena;
    const char *file; /* may be NULL */
    esp_diag_t *diag;
    const esp_i_yaml_node_t *root; /* a mapping */
} esp_i_yaml_t;

/* Reads text into yaml->root; arena, file and diag are set. Errors: SYNTAX, UNSUPPORTED, LIMIT,
 * INVALID (a duplicate key; the root is no mapping), NOMEM. */
esp_status_t esp_i_yaml_read(esp_i_yaml_t *yaml, const char *text, size_t length);

/* ---- errors: all set file, line, column and the path of keys --------------------------------- */

esp_status_t esp_i_yaml_fail(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             esp_status_t status, const char *format, ...) ESP_PRINTF(4, 5);
#ifdef __clang_analyzer__ /* as esp_i_fail */
#define esp_i_yaml_fail(yaml, node, status, ...)                                                   \
    ((void)esp_i_yaml_fail(yaml, node, status, __VA_ARGS__), (status))
#endif
/* Passes a status of some other call on; if it is an error about the input, adds the place. */
esp_status_t esp_i_yaml_at(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                           esp_status_t status);

/* ---- access ---------------------------------------------------------------------------------- */

/* The node is a mapping and has no key but these (a list ended by NULL). */
esp_status_t esp_i_yaml_keys(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char *const *keys);
/* The value of a key, or NULL. */
const esp_i_yaml_node_t *esp_i_yaml_get(const esp_i_yaml_node_t *map, const char *key);
/* The same; a missing key is an error. */
esp_status_t esp_i_yaml_need(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *map,
                             const char *key, const esp_i_yaml_node_t **node_out);
/* The node is a list (of at least one). `of` says of what, for the message. */
esp_status_t esp_i_yaml_list(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char *of);
/* A scalar that is not empty. */
esp_status_t esp_i_yaml_text(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char **text_out);
esp_status_t esp_i_yaml_int(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node, int32_t low,
                            int32_t high, int32_t *value_out);
/* true or false. */
esp_status_t esp_i_yaml_bool(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             bool *value_out);
/* One of n words; the index. */
esp_status_t esp_i_yaml_word(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                             const char *const *words, int32_t n, int32_t *index_out);

/* ---- quantities: a number and its unit (quantity.c) ------------------------------------------ */

typedef enum esp_i_quantity {
    ESP_I_SIZE,          /* in bytes: "32 GiB" */
    ESP_I_BANDWIDTH,     /* in bytes per second: "25 Gbit/s", "300 GB/s" */
    ESP_I_TIME,          /* in nanoseconds: "5 us" */
    ESP_I_SPEED,         /* in FLOP/s: "30 TFLOP/s" */
    ESP_I_TIME_PER_BYTE, /* in attoseconds per byte: "100 ps/B" */
    ESP_I_QUANTITY_COUNT
} esp_i_quantity_t;

/* A quantity in [low, high] base units, rounded to the nearest whole one. */
esp_status_t esp_i_yaml_quantity(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node,
                                 esp_i_quantity_t quantity, int64_t low, int64_t high,
                                 int64_t *value_out);
/* A plain decimal such as "2" or "1.5", in thousandths. */
esp_status_t esp_i_yaml_ratio(const esp_i_yaml_t *yaml, const esp_i_yaml_node_t *node, int64_t low,
                              int64_t high, int64_t *thousandths_out);

#endif
