/* A graph, function body or branch while it is being imported: its names and its nodes. */
#ifndef ESP_IMPORT_SCOPE_H
#define ESP_IMPORT_SCOPE_H

#include "import/import.h"

/* One node of the scope: where it lies in the file, and its names as ids. */
typedef struct esp_i_stub {
    esp_i_wire_t body;
    esp_i_str_t op;
    int32_t first_in, n_in, n_out; /* operands [first_in, ..): inputs, then outputs */
    int32_t next_in;               /* first input not yet looked at by the visit */
    bool open, done;               /* being visited; imported */
    bool needed;
} esp_i_stub_t;

struct esp_i_scope {
    esp_i_import_t *im;
    esp_i_scope_t *parent;               /* a branch reads the names around it; NULL: none */
    const esp_i_pb_function_t *function; /* the body is that of a function, called by `call` */
    const esp_i_node_t *call;
    esp_i_wire_t opsets_of; /* message with the opset imports, in field opsets_number */
    uint32_t opsets_number;
    int64_t opset;      /* of the default domain; 0: not imported */
    const char *prefix; /* of op names */

    esp_i_names_t names;
    ESP_VEC(esp_i_value_t *) values; /* by name id; NULL: not yet there */
    ESP_VEC(int32_t) producer;       /* by name id: the node that makes it; -1: none */
    ESP_VEC(esp_i_stub_t) nodes;
    ESP_VEC(int32_t) operands; /* name ids; -1: absent */
};

void esp_i_im_scope_init(esp_i_scope_t *scope, esp_i_import_t *im);
void esp_i_im_scope_fini(esp_i_scope_t *scope);
/* The id of a name, added if it is new. */
esp_status_t esp_i_im_scope_name(esp_i_scope_t *scope, esp_i_str_t name, int32_t *id_out);
/* Gives a name that has none yet a value; a second one is an error. */
esp_status_t esp_i_im_scope_define(esp_i_scope_t *scope, esp_i_str_t name, esp_i_value_t *v);
/*
 * The value of a name here or in a scope around (where a node that is still to come is imported for
 * it); *out is NULL if there is none.
 */
esp_status_t esp_i_im_scope_find(esp_i_scope_t *scope, const char *name, esp_i_value_t **out);
/* Collects the nodes of a message (field `number`). */
esp_status_t esp_i_im_scope_nodes(esp_i_scope_t *scope, esp_i_wire_t message, uint32_t number);
/* Defines the initializers of a graph. */
esp_status_t esp_i_im_scope_initializers(esp_i_scope_t *scope, esp_i_wire_t graph);
/*
 * Initializers of one float (but no scalars) become parameters where only weights are read:
 * operands of products, convolutions, normalisations, PRelu and recurrent layers, and addends of a
 * MatMul. (numbers.c)
 */
void esp_i_im_scope_numbers(esp_i_scope_t *scope);
/* Imports one node, whose inputs are there. (node.c) */
esp_status_t esp_i_im_node_import(esp_i_scope_t *scope, esp_i_stub_t stub);
/* Reads the opset imports that hold in the scope. (node.c) */
esp_status_t esp_i_im_scope_opsets(esp_i_scope_t *scope, esp_i_wire_t message, uint32_t number);
/* Imports the nodes that the names `wanted` need, in an order that respects the data flow. */
esp_status_t esp_i_im_scope_run(esp_i_scope_t *scope, int32_t n_wanted, const int32_t *wanted);

#endif
