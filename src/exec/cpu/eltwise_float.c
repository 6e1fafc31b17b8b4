/* Element-wise codes over float32, one loop each. Codes that are rare are not here. */
#include "exec/cpu/eltwise.h"
#include "exec/cpu/functions.h"

#define LOOP(name, a_type, b_type, y_type, expression)                                             \
    ESP_I_VECTOR static void loop_##name(int64_t n, const esp_i_cpu_elt_tile_t *tile)              \
    {                                                                                              \
        const a_type *a = tile->x[0];                                                              \
        const b_type *b = tile->x[1];                                                              \
        const float *c = tile->x[2], alpha = (float)tile->alpha, beta = (float)tile->beta;         \
        y_type *y = tile->y;                                                                       \
        (void)b, (void)c, (void)alpha, (void)beta;                                                 \
        ESP_I_INDEPENDENT                                                                          \
        for (int64_t i = 0; i < n; i++)                                                            \
            y[i] = (y_type)(expression);                                                           \
    }
#define FLOATS(name, expression)  LOOP(name, float, float, float, expression)
#define COMPARE(name, expression) LOOP(name, float, float, uint8_t, expression)
#define LOGIC(name, expression)   LOOP(name, uint8_t, uint8_t, uint8_t, expression)

#define A a[i]
#define B b[i]
#define C c[i]

static inline float clip(float x, float low, float high)
{
    const float above = x < low ? low : x; /* NaN stays */
    return above > high ? high : above;
}

static inline float sign(float x)
{
    return (x > 0 ? 1.0f : 0.0f) - (x < 0 ? 1.0f : 0.0f);
}

static inline float silu_slope(float x)
{
    const float s = esp_i_sigmoid(x);
    return s * (1 + x * (1 - s));
}

static inline float gauss(float x)
{
    return esp_i_exp_below(-0.5f * x * x);
}

static inline float gelu(float x)
{
    return x * esp_i_normal_below(x, gauss(x));
}

static inline float gelu_slope(float x)
{
    const float density = gauss(x);
    return esp_i_normal_below(x, density) + x * 0.39894228f * density;
}

/* tanh of sqrt(2 / pi) (x + 0.044715 x^3) */
static inline float gelu_inner(float x)
{
    return esp_i_tanh(0.79788456f * (x + 0.044715f * x * x * x));
}

static inline float gelu_tanh_slope(float x)
{
    const float t = gelu_inner(x), square = x * x > 1e30f ? 1e30f : x * x; /* not 0 * infinity */
    return 0.5f * (1 + t) + 0.5f * x * (1 - t * t) * 0.79788456f * (1 + 0.134145f * square);
}

static inline float hard_sigmoid_slope(float x, float alpha, float beta)
{
    const float line = alpha * x + beta;
    return line > 0 && line < 1 ? alpha : 0;
}

static inline float hard_swish_slope(float x)
{
    const float inside = x / 3 + 0.5f, above = x >= 3 ? 1 : inside;
    return x <= -3 ? 0 : above;
}

FLOATS(ADD1, A)
FLOATS(ADD2, A + B)
FLOATS(ADD3, A + B + C)
FLOATS(SUB, A - B)
FLOATS(MUL, A *B)
FLOATS(DIV, A / B)
FLOATS(DIV_NO_NAN, B == 0 ? 0 : A / B)
FLOATS(AFFINE, alpha *A + beta)
FLOATS(SQUARE, A *A)
FLOATS(CUBE, A *A *A)
FLOATS(MAX, A > B || A != A ? A : B)
FLOATS(MIN, A < B || A != A ? A : B)
FLOATS(NEG, -A)
FLOATS(ABS, fabsf(A))
FLOATS(SIGN, sign(A))
FLOATS(EXP, esp_i_exp(A))
FLOATS(LOG, esp_i_log(A))
FLOATS(SQRT, sqrtf(A))
FLOATS(RSQRT, 1 / sqrtf(A))
FLOATS(RECIPROCAL, 1 / A)
FLOATS(ERF, esp_i_erf(A))
FLOATS(FLOOR, floorf(A))
FLOATS(CEIL, ceilf(A))
FLOATS(ROUND, nearbyintf(A))
FLOATS(RELU, A < 0 ? 0 : A)
FLOATS(RELU_GRAD, A > 0 ? B : 0)
FLOATS(LEAKY_RELU, A < 0 ? alpha * A : A)
FLOATS(LEAKY_RELU_GRAD, A > 0 ? B : alpha * B)
FLOATS(CLIP, clip(A, alpha, beta))
FLOATS(CLIP_GRAD, A > alpha && A < beta ? B : 0)
FLOATS(SIGMOID, esp_i_sigmoid(A))
FLOATS(SIGMOID_GRAD, B *A *(1 - A))
FLOATS(TANH, esp_i_tanh(A))
FLOATS(TANH_GRAD, B *(1 - A * A))
FLOATS(SILU, A *esp_i_sigmoid(A))
FLOATS(SILU_GRAD, B *silu_slope(A))
FLOATS(GELU, gelu(A))
FLOATS(GELU_GRAD, B *gelu_slope(A))
FLOATS(GELU_TANH, 0.5f * A * (1 + gelu_inner(A)))
FLOATS(GELU_TANH_GRAD, B *gelu_tanh_slope(A))
FLOATS(HARD_SIGMOID, clip(alpha *A + beta, 0, 1))
FLOATS(HARD_SIGMOID_GRAD, B *hard_sigmoid_slope(A, alpha, beta))
FLOATS(HARD_SWISH, A *clip(A / 6 + 0.5f, 0, 1))
FLOATS(HARD_SWISH_GRAD, B *hard_swish_slope(A))
FLOATS(SOFTPLUS, esp_i_softplus(A))
FLOATS(ELU, A > 0 ? A : alpha * esp_i_expm1(A))
FLOATS(ELU_GRAD, A > 0 ? B : alpha * esp_i_exp(A) * B)
COMPARE(EQUAL, A == B)
COMPARE(NOT_EQUAL, A != B)
COMPARE(LESS, A < B)
COMPARE(LESS_EQUAL, A <= B)
COMPARE(GREATER, A > B)
COMPARE(GREATER_EQUAL, A >= B)
LOGIC(AND, A &&B)
LOGIC(OR, A || B)
LOGIC(XOR, !A != !B)
LOGIC(NOT, !A)
LOOP(WHERE, uint8_t, float, float, A ? B : C)

static esp_i_cpu_elt_fn *power_loop(double alpha)
{
    static const struct {
        double alpha;
        esp_i_cpu_elt_fn *loop;
    } powers[] = {{2, loop_SQUARE}, {3, loop_CUBE},     {0.5, loop_SQRT},
                  {1, loop_ADD1},   {-0.5, loop_RSQRT}, {-1, loop_RECIPROCAL}};
    for (int32_t i = 0; i < (int32_t)(sizeof powers / sizeof *powers); i++)
        if (powers[i].alpha == alpha)
            return powers[i].loop;
    return NULL;
}

esp_i_cpu_elt_fn *esp_i_cpu_elt_float(esp_eltwise_t code, int32_t n_in, double alpha)
{
#define CODE(name) [ESP_ELT_##name] = loop_##name
    static esp_i_cpu_elt_fn *const loops[ESP_ELT_COUNT] = {
        CODE(SUB),          CODE(MUL),
        CODE(DIV),          CODE(DIV_NO_NAN),
        CODE(AFFINE),       CODE(MAX),
        CODE(MIN),          CODE(NEG),
        CODE(ABS),          CODE(SIGN),
        CODE(EXP),          CODE(LOG),
        CODE(SQRT),         CODE(RSQRT),
        CODE(RECIPROCAL),   CODE(ERF),
        CODE(FLOOR),        CODE(CEIL),
        CODE(ROUND),        CODE(RELU),
        CODE(RELU_GRAD),    CODE(LEAKY_RELU),
        CODE(CLIP),         CODE(LEAKY_RELU_GRAD),
        CODE(CLIP_GRAD),    CODE(SIGMOID),
        CODE(SIGMOID_GRAD), CODE(TANH),
        CODE(TANH_GRAD),    CODE(SILU),
        CODE(SILU_GRAD),    CODE(GELU),
        CODE(GELU_GRAD),    CODE(GELU_TANH),
        CODE(HARD_SIGMOID), CODE(GELU_TANH_GRAD),
        CODE(HARD_SWISH),   CODE(HARD_SIGMOID_GRAD),
        CODE(SOFTPLUS),     CODE(HARD_SWISH_GRAD),
        CODE(ELU),          CODE(ELU_GRAD),
        CODE(EQUAL),        CODE(NOT_EQUAL),
        CODE(LESS),         CODE(LESS_EQUAL),
        CODE(GREATER),      CODE(GREATER_EQUAL),
        CODE(AND),          CODE(OR),
        CODE(XOR),          CODE(NOT),
        CODE(WHERE),
    };
    static esp_i_cpu_elt_fn *const sums[] = {loop_ADD1, loop_ADD2, loop_ADD3};
    if (code == ESP_ELT_ADD)
        return sums[n_in - 1];
    return code == ESP_ELT_POWC ? power_loop(alpha) : loops[code];
}
