/* The catalogue of device types: clusters/devices.yaml as it was when the library was built. */
#include "cluster/read.h"

#include <string.h>

typedef struct whole_catalogue {
    esp_catalogue_t pub;
    esp_i_arena_t arena; /* texts and types */
    ESP_VEC(esp_device_type_t) types;
} whole_catalogue_t;

static esp_status_t take_type(void *context, const esp_device_type_t *type)
{
    whole_catalogue_t *whole = context;
    ESP_TRY(esp_i_device_type_check(type, NULL));
    esp_device_type_t copy = *type;
    copy.name = esp_i_arena_strdup(&whole->arena, type->name);
    copy.source = esp_i_arena_strdup(&whole->arena, type->source);
    if (copy.name == NULL || copy.source == NULL ||
        !esp_vec_push(&whole->arena.alloc, &whole->types, copy))
        return ESP_ERR_NOMEM;
    return ESP_OK;
}

static esp_status_t read_catalogue(whole_catalogue_t *whole, esp_i_yaml_t *yaml)
{
    static const char *const keys[] = {"types", NULL};
    const esp_i_yaml_node_t *types;
    ESP_TRY(esp_i_yaml_read(yaml, (const char *)esp_i_devices_yaml, esp_i_devices_yaml_length));
    ESP_TRY(esp_i_yaml_keys(yaml, yaml->root, keys));
    ESP_TRY(esp_i_yaml_need(yaml, yaml->root, "types", &types));
    return esp_i_read_types(yaml, types, take_type, whole);
}

esp_status_t esp_catalogue_create(const esp_allocator_t *allocator, esp_catalogue_t **catalogue_out,
                                  esp_diag_t *diag)
{
    esp_allocator_t alloc = esp_i_allocator(allocator);
    whole_catalogue_t *whole = esp_i_alloc_array(&alloc, 1, sizeof *whole);
    if (whole == NULL)
        return esp_i_nomem(diag);
    esp_i_arena_t scratch;
    esp_i_arena_init(&whole->arena, &alloc);
    esp_i_arena_init(&scratch, &alloc);
    esp_i_yaml_t yaml = {.arena = &scratch, .file = "the device catalogue"};
    esp_status_t status = read_catalogue(whole, &yaml);
    esp_i_arena_fini(&scratch);
    if (status != ESP_OK) {
        /* The file is part of the library and of its tests: only memory can be short. */
        esp_assert(status == ESP_ERR_NOMEM);
        esp_catalogue_destroy(&whole->pub);
        return esp_i_nomem(diag);
    }
    whole->pub.n_types = whole->types.count;
    whole->pub.types = whole->types.data;
    *catalogue_out = &whole->pub;
    return ESP_OK;
}

void esp_catalogue_destroy(esp_catalogue_t *catalogue)
{
    if (catalogue == NULL)
        return;
    whole_catalogue_t *whole = (whole_catalogue_t *)catalogue; /* pub is its first member */
    esp_allocator_t alloc = whole->arena.alloc;
    esp_vec_free(&alloc, &whole->types);
    esp_i_arena_fini(&whole->arena);
    esp_i_free(&alloc, whole);
}

const esp_device_type_t *esp_catalogue_find(const esp_catalogue_t *catalogue, const char *name)
{
    for (int32_t i = 0; i < catalogue->n_types; i++)
        if (strcmp(catalogue->types[i].name, name) == 0)
            return &catalogue->types[i];
    return NULL;
}
