/* The value of every element-wise code. A code without a line here does not compile. */
#include "graph/kinds/eltwise.h"

#include <math.h>

/* ---- functions of more than one line; S is the logistic function -------------------------------
 */

static double sigmoid(double x)
{
    double e = exp(-fabs(x)); /* never overflows */
    return x >= 0 ? 1 / (1 + e) : e / (1 + e);
}

static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x)));
}

static double clip(double x, double low, double high)
{
    return x < low ? low : x > high ? high : x; /* NaN stays */
}

static double sign(double x)
{
    return (double)((x > 0) - (x < 0));
}

static double divide(const esp_i_elt_args_t *p)
{
    if (!p->whole)
        return p->x[0] / p->x[1];
    return p->x[1] == 0 ? 0 : trunc(p->x[0] / p->x[1]);
}

static double power(double x, double y, bool whole)
{
    return whole ? trunc(pow(x, y)) : pow(x, y);
}

/* alpha = 1: the sign of the dividend (C), else that of the divisor (Python). */
static double modulo(double x, double y, bool c_sign)
{
    if (y == 0)
        return c_sign ? fmod(x, y) : NAN;
    double rest = fmod(x, y);
    return !c_sign && rest != 0 && (rest < 0) != (y < 0) ? rest + y : rest;
}

static double silu_slope(double x)
{
    double s = sigmoid(x);
    return s * (1 + x * (1 - s));
}

static const double sqrt_half = 0.70710678118654752440, sqrt_2_pi = 0.79788456080286535588;
static const double sqrt_1_2pi = 0.39894228040143267794, gelu_cubic = 0.044715;

static double gelu(double x)
{
    return 0.5 * x * (1 + erf(x * sqrt_half));
}

static double gelu_slope(double x)
{
    return 0.5 * (1 + erf(x * sqrt_half)) + x * sqrt_1_2pi * exp(-0.5 * x * x);
}

static double gelu_tanh(double x)
{
    return 0.5 * x * (1 + tanh(sqrt_2_pi * (x + gelu_cubic * x * x * x)));
}

static double gelu_tanh_slope(double x)
{
    double t = tanh(sqrt_2_pi * (x + gelu_cubic * x * x * x));
    return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * sqrt_2_pi * (1 + 3 * gelu_cubic * x * x);
}

static double hard_sigmoid_slope(double x, double alpha, double beta)
{
    double line = alpha * x + beta;
    return line > 0 && line < 1 ? alpha : 0;
}

static double hard_swish_slope(double x)
{
    return x <= -3 ? 0 : x >= 3 ? 1 : x / 3 + 0.5;
}

/* ---- one line per code ----------------------------------------------------------------------- */

typedef double (*value_fn)(const esp_i_elt_args_t *p);

#define VALUE(name, expression)                                                                    \
    static double value_##name(const esp_i_elt_args_t *p)                                          \
    {                                                                                              \
        return (expression);                                                                       \
    }

#define A p->x[0]
#define B p->x[1]

VALUE(ADD, A + B)
VALUE(SUB, A - B)
VALUE(MUL, A *B)
VALUE(DIV, divide(p))
VALUE(DIV_NO_NAN, B == 0 ? 0 : divide(p))
VALUE(AFFINE, p->alpha *A + p->beta)
VALUE(POW, power(A, B, p->whole))
VALUE(POWC, pow(A, p->alpha))
VALUE(MAX, A > B || isnan(A) ? A : B)
VALUE(MIN, A < B || isnan(A) ? A : B)
VALUE(MOD, modulo(A, B, p->alpha == 1))
VALUE(NEG, -A)
VALUE(ABS, fabs(A))
VALUE(SIGN, sign(A))
VALUE(EXP, exp(A))
VALUE(LOG, log(A))
VALUE(SQRT, sqrt(A))
VALUE(RSQRT, 1 / sqrt(A))
VALUE(RECIPROCAL, 1 / A)
VALUE(ERF, erf(A))
VALUE(SIN, sin(A))
VALUE(COS, cos(A))
VALUE(FLOOR, floor(A))
VALUE(CEIL, ceil(A))
VALUE(ROUND, nearbyint(A))
VALUE(RELU, A < 0 ? 0 : A)
VALUE(RELU_GRAD, A > 0 ? B : 0)
VALUE(LEAKY_RELU, A < 0 ? p->alpha * A : A)
VALUE(LEAKY_RELU_GRAD, A > 0 ? B : p->alpha * B)
VALUE(CLIP, clip(A, p->alpha, p->beta))
VALUE(CLIP_GRAD, A > p->alpha && A < p->beta ? B : 0)
VALUE(SIGMOID, sigmoid(A))
VALUE(SIGMOID_GRAD, B *A *(1 - A))
VALUE(TANH, tanh(A))
VALUE(TANH_GRAD, B *(1 - A * A))
VALUE(SILU, A *sigmoid(A))
VALUE(SILU_GRAD, B *silu_slope(A))
VALUE(GELU, gelu(A))
VALUE(GELU_GRAD, B *gelu_slope(A))
VALUE(GELU_TANH, gelu_tanh(A))
VALUE(GELU_TANH_GRAD, B *gelu_tanh_slope(A))
VALUE(HARD_SIGMOID, clip(p->alpha *A + p->beta, 0, 1))
VALUE(HARD_SIGMOID_GRAD, B *hard_sigmoid_slope(A, p->alpha, p->beta))
VALUE(HARD_SWISH, A *clip(A / 6 + 0.5, 0, 1))
VALUE(HARD_SWISH_GRAD, B *hard_swish_slope(A))
VALUE(SOFTPLUS, softplus(A))
VALUE(ELU, A > 0 ? A : p->alpha * expm1(A))
VALUE(ELU_GRAD, A > 0 ? B : p->alpha * exp(A) * B)
VALUE(EQUAL, A == B)
VALUE(NOT_EQUAL, A != B)
VALUE(LESS, A < B)
VALUE(LESS_EQUAL, A <= B)
VALUE(GREATER, A > B)
VALUE(GREATER_EQUAL, A >= B)
VALUE(AND, A != 0 && B != 0)
VALUE(OR, A != 0 || B != 0)
VALUE(XOR, (A != 0) != (B != 0))
VALUE(NOT, A == 0)
VALUE(WHERE, A != 0 ? B : p->x[2])

static const value_fn values[ESP_ELT_COUNT] = {
#define ESP_ELT(name, text, arity, flop) [ESP_ELT_##name] = value_##name,
#include "espalier/eltwise.def"
#undef ESP_ELT
};

double esp_i_elt_value(esp_eltwise_t code, const esp_i_elt_args_t *args)
{
    return values[code](args);
}
