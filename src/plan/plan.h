/* Inside of the plan file: rules that both directions share, names of enumeration values, paths. */
#ifndef ESP_PLAN_INTERNAL_H
#define ESP_PLAN_INTERNAL_H

#include "base/json.h"
#include "espalier/plan.h"

/* A plan that was read or cloned; its handle is the address of the first member. */
typedef struct esp_i_plan {
    esp_plan_t pub;
    esp_i_arena_t arena;
} esp_i_plan_t;

/* Texts of enumeration values, in the order of the values. */
typedef struct esp_i_plan_names {
    const char *const *name;
    int32_t n;
} esp_i_plan_names_t;
extern const esp_i_plan_names_t esp_i_plan_modes, esp_i_plan_losses, esp_i_plan_optimizers,
    esp_i_plan_precisions, esp_i_plan_links, esp_i_plan_syncs, esp_i_plan_shares;

/*
 * Verifies what a plan must hold, whoever made it; diag->place is the JSON path of the first fault,
 * and `status` what is returned for it.
 */
esp_status_t esp_i_plan_validate(const esp_plan_t *plan, esp_status_t status,
                                 const esp_allocator_t *alloc, esp_diag_t *diag);

/*
 * `path` as a file in `directory` names it: relative if it lies in it, absolute otherwise. ""
 * stays. *out is in the arena, or `path` itself.
 */
esp_status_t esp_i_plan_path_out(esp_i_arena_t *arena, const char *directory, const char *path,
                                 const char **out, esp_diag_t *diag);
/* What a path in the file `file` means from the working directory. NULL: no memory. */
const char *esp_i_plan_path_in(esp_i_arena_t *arena, const char *file, const char *path);
/* The directory of a file: "." if there is none in its name. NULL: no memory. */
const char *esp_i_plan_directory(esp_i_arena_t *arena, const char *file);

#endif
