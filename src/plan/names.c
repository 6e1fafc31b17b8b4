/* Texts of enumeration values in plan files. */
#include "plan/plan.h"

#include <assert.h>

#define COUNT(list) ((int32_t)(sizeof(list) / sizeof *(list)))

static const char *const modes[] = {"batch", "whole", "shard"};
static_assert(ESP_MODE_SHARD == 2, "one text per mode");
const esp_i_plan_names_t esp_i_plan_modes = {modes, COUNT(modes)};

static const char *const losses[] = {"auto", "xent", "mse", "output"};
static_assert(ESP_LOSS_OUTPUT == 3, "one text per loss");
const esp_i_plan_names_t esp_i_plan_losses = {losses, COUNT(losses)};

/* Running statistics are no optimizer that anyone can choose. */
static const char *const optimizers[] = {"sgd", "momentum", "adam", "adamw"};
static_assert(ESP_OPTIMIZER_ADAMW == 3 && ESP_OPTIMIZER_STATISTIC == 4, "one text per optimizer");
const esp_i_plan_names_t esp_i_plan_optimizers = {optimizers, COUNT(optimizers)};

static const char *const precisions[] = {
#define PRECISION(name, text) text,
    ESP_PRECISION_MAP(PRECISION)
#undef PRECISION
};
const esp_i_plan_names_t esp_i_plan_precisions = {precisions, COUNT(precisions)};

static const char *const links[] = {"exclusive", "fair"};
static_assert(ESP_LINK_FAIR == 1, "one text per mode of links");
const esp_i_plan_names_t esp_i_plan_links = {links, COUNT(links)};

static const char *const syncs[] = {
#define SYNC(name, text, help) text,
    ESP_SYNC_MAP(SYNC)
#undef SYNC
};
const esp_i_plan_names_t esp_i_plan_syncs = {syncs, COUNT(syncs)};

static const char *const shares[] = {"equal", "proportional"};
static_assert(ESP_SHARES_PROPORTIONAL == 1, "one text per kind of shares");
const esp_i_plan_names_t esp_i_plan_shares = {shares, COUNT(shares)};
