/* TRANSPOSE, EXPAND, SLICE, PAD, CONCAT: copies whose loops are those of the reference kernels. */
#include "exec/cpu/copy.h"

/* One copy per input; PAD fills y first. */
typedef struct plan {
    int32_t n;
    bool fill;
    esp_i_cpu_copy_t *copy; /* from input i to output 0 */
} plan_t;

static void views_run(const esp_i_cpu_kernel_t *kernel, const esp_i_moment_t *moment)
{
    const plan_t *plan = kernel->state;
    const esp_i_call_t *call = kernel->call;
    void *y = esp_i_cpu_data(kernel, call->n_in);
    (void)moment;
    if (plan->fill)
        esp_i_cpu_fill(esp_i_cpu_out(kernel, 0)->dtype, esp_i_cpu_out(kernel, 0)->elements,
                       call->attr->pad.value, y);
    for (int32_t i = 0; i < plan->n; i++)
        esp_i_cpu_copy_run(&plan->copy[i], esp_i_cpu_data(kernel, i), y);
}

static esp_status_t begin(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, plan_t **plan_out,
                          esp_diag_t *diag)
{
    ESP_TRY(esp_i_cpu_state(cpu, kernel, sizeof(plan_t), diag));
    plan_t *plan = kernel->state;
    plan->n = kernel->call->n_in;
    plan->copy = esp_i_arena_alloc(&cpu->state, plan->n, sizeof *plan->copy);
    if (plan->copy == NULL)
        return esp_i_nomem(diag);
    kernel->run = views_run;
    *plan_out = plan;
    return ESP_OK;
}

/* ---- nests: operand 0 is x, 1 is y ----------------------------------------------------------- */

esp_status_t esp_i_cpu_TRANSPOSE(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_local_t *x = esp_i_cpu_in(kernel, 0);
    const esp_i_buffer_t split = esp_i_cpu_buffer(kernel, 0);
    esp_i_nest_t nest = {.n_operands = 2};
    esp_i_walk_t walk;
    plan_t *plan;
    ESP_TRY(begin(cpu, kernel, &plan, diag));
    for (int32_t a = 0; a < x->global_rank; a++)
        esp_i_nest_axis(&nest, 0, esp_i_nest_loop(&nest, x->global[a]));
    for (int32_t a = 0; a < x->global_rank; a++)
        esp_i_nest_axis(&nest, 1, kernel->call->attr->transpose.perm[a]);
    esp_i_nest_merge(&nest);
    esp_i_nest_split(&nest, 0, &split);
    esp_i_nest_walk(&nest, &walk);
    esp_i_cpu_copy_plan(&walk, 0, 1, x->dtype, &plan->copy[0]);
    return ESP_OK;
}

esp_status_t esp_i_cpu_EXPAND(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_local_t *x = esp_i_cpu_in(kernel, 0), *y = esp_i_cpu_out(kernel, 0);
    const esp_i_buffer_t split = esp_i_cpu_buffer(kernel, 1);
    esp_i_nest_t nest = {.n_operands = 2};
    esp_i_walk_t walk;
    plan_t *plan;
    ESP_TRY(begin(cpu, kernel, &plan, diag));
    for (int32_t a = 0; a < y->global_rank; a++) {
        const int32_t loop = esp_i_nest_loop(&nest, y->global[a]);
        const int32_t own = a - y->global_rank + x->global_rank;
        if (own >= 0 && x->global[own] == y->global[a])
            esp_i_nest_axis(&nest, 0, loop);
        esp_i_nest_axis(&nest, 1, loop);
    }
    esp_i_nest_merge(&nest);
    esp_i_nest_split(&nest, 1, &split);
    esp_i_nest_walk(&nest, &walk);
    esp_i_cpu_copy_plan(&walk, 0, 1, x->dtype, &plan->copy[0]);
    return ESP_OK;
}

/* ---- chains: operand 0 is the small one, 1 the large one --------------------------------------
 */

esp_status_t esp_i_cpu_SLICE(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_local_t *x = esp_i_cpu_in(kernel, 0);
    const esp_i_buffer_t split = esp_i_cpu_buffer(kernel, 0);
    const esp_attr_t *attr = kernel->call->attr;
    esp_i_chain_t chain = {0};
    esp_i_walk_t walk;
    plan_t *plan;
    ESP_TRY(begin(cpu, kernel, &plan, diag));
    for (int32_t a = 0; a < x->global_rank; a++) {
        const int64_t count = attr->slice.count[a];
        esp_i_chain_axis(&chain, count, x->global[a], count > 0 ? attr->slice.start[a] : 0,
                         count > 1 ? attr->slice.step[a] : 1);
    }
    esp_i_chain_split(&chain, true, &split);
    esp_i_chain_walk(&chain, &walk);
    esp_i_cpu_copy_plan(&walk, 1, 0, x->dtype, &plan->copy[0]);
    return ESP_OK;
}

esp_status_t esp_i_cpu_PAD(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_local_t *x = esp_i_cpu_in(kernel, 0);
    const esp_i_buffer_t split = esp_i_cpu_buffer(kernel, 0);
    const esp_attr_t *attr = kernel->call->attr;
    esp_i_chain_t chain = {0};
    esp_i_walk_t walk;
    plan_t *plan;
    ESP_TRY(begin(cpu, kernel, &plan, diag));
    for (int32_t a = 0; a < x->global_rank; a++) {
        const int64_t n = x->global[a], step = n > 1 ? attr->pad.between[a] + 1 : 1;
        const int64_t reach = n > 0 ? (n - 1) * step + 1 : 0;
        esp_i_chain_axis(&chain, n, attr->pad.lo[a] + reach + attr->pad.hi[a], attr->pad.lo[a],
                         step);
    }
    esp_i_chain_split(&chain, false, &split);
    esp_i_chain_walk(&chain, &walk);
    esp_i_cpu_copy_plan(&walk, 0, 1, x->dtype, &plan->copy[0]);
    plan->fill = true;
    return ESP_OK;
}

esp_status_t esp_i_cpu_CONCAT(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    const esp_i_local_t *y = esp_i_cpu_out(kernel, 0);
    const int32_t axis = kernel->call->attr->axis.axis;
    int64_t unit = 0, start = 0;
    plan_t *plan;
    ESP_TRY(begin(cpu, kernel, &plan, diag));
    for (int32_t i = 0; i < plan->n; i++)
        unit = esp_i_gcd(unit, esp_i_cpu_in(kernel, i)->global[axis]);
    for (int32_t i = 0; i < plan->n; i++) {
        const esp_i_local_t *x = esp_i_cpu_in(kernel, i);
        const esp_i_buffer_t split = esp_i_cpu_buffer(kernel, i);
        esp_i_chain_t chain = {0};
        esp_i_walk_t walk;
        for (int32_t a = 0; a < x->global_rank; a++) {
            if (a == axis)
                esp_i_chain_units(&chain, x->global[a], y->global[a], start, unit);
            else
                esp_i_chain_carry(&chain, x->global[a]);
        }
        esp_i_chain_split(&chain, false, &split);
        esp_i_chain_walk(&chain, &walk);
        esp_i_cpu_copy_plan(&walk, 0, 1, x->dtype, &plan->copy[i]);
        start += x->global[axis];
    }
    return ESP_OK;
}

/* The same buffer: deployments make no task of it. */
esp_status_t esp_i_cpu_RESHAPE(esp_i_cpu_t *cpu, esp_i_cpu_kernel_t *kernel, esp_diag_t *diag)
{
    (void)cpu;
    return esp_i_fail(diag, ESP_ERR_INTERNAL, "op %s: a reshape is no task", kernel->call->name);
}
