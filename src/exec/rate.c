/* Factors of the learning rate. */
#include "espalier/train.h"

#include <math.h>

esp_schedule_opts_t esp_schedule_opts_default(void)
{
    return (esp_schedule_opts_t){
        .struct_size = sizeof(esp_schedule_opts_t), .every = 1000, .gamma = 0.1};
}

double esp_schedule_factor(const esp_schedule_opts_t *opts, uint64_t step)
{
    const double pi = 3.14159265358979323846;
    double warmup = opts->warmup > 0 ? (double)opts->warmup : 0, t = (double)step;
    if (t + 1 < warmup)
        return (t + 1) / warmup;
    double after = t - warmup > 0 ? t - warmup : 0, length = (double)opts->total - warmup;
    double part = length > 0 && after < length ? after / length : after > 0 || length <= 0;
    double factor = 1;
    switch (opts->kind) {
    case ESP_SCHEDULE_CONSTANT:
        return 1;
    case ESP_SCHEDULE_STEP:
        factor = pow(opts->gamma, floor(after / (double)(opts->every > 0 ? opts->every : 1)));
        return factor > opts->least ? factor : opts->least;
    case ESP_SCHEDULE_COSINE:
        factor = 0.5 * (1 + cos(pi * part));
        break;
    case ESP_SCHEDULE_LINEAR:
        factor = 1 - part;
        break;
    }
    return opts->least + (1 - opts->least) * factor;
}
