/* Examples of the kinds that are plain loop nests: contraction, windows, element-wise, views. */
#include "kind_harness.h"

#define CONTRACT(text, la, lb, ly, ...)                                                            \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_CONTRACT, .attr.contract = {.a = la, .b = lb, .y = ly},     \
        .n_in = 2, __VA_ARGS__                                                                     \
    }
#define IN(r, ...)                                                                                 \
    {                                                                                              \
        .rank = r, .dims = { __VA_ARGS__ }                                                         \
    }
#define ELT1(text, c, al, be, ...)                                                                 \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_ELTWISE,                                                    \
        .attr.eltwise = {.code = ESP_ELT_##c, .alpha = al, .beta = be}, .n_in = 1, __VA_ARGS__     \
    }
#define ELT2(text, c, ...)                                                                         \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_ELTWISE, .attr.eltwise = {.code = ESP_ELT_##c}, .n_in = 2,  \
        __VA_ARGS__                                                                                \
    }

/* 2-D, everything asymmetric, two groups: x[2,4,5,6] w[6,2,3,2] y[2,6,2,5] */
#define WINDOW_2D                                                                                  \
    {                                                                                              \
        .rank = 2, .kernel = {3, 2}, .stride = {2, 1}, .dilation = {1, 2}, .pad_lo = {1, 0},       \
        .pad_hi = {                                                                                \
            0,                                                                                     \
            1                                                                                      \
        }                                                                                          \
    }
/* 1-D, no groups: x[3,2,7] w[3,2,3] y[3,3,3] */
#define WINDOW_1D                                                                                  \
    {                                                                                              \
        .rank = 1, .kernel = {3}, .stride = {2}, .dilation = {2}, .pad_lo = {2}, .pad_hi = { 1 }   \
    }
/* 3-D, depthwise: x[1,3,3,2,3] w[3,1,2,2,1] y[1,3,2,2,3] */
#define WINDOW_3D                                                                                  \
    {                                                                                              \
        .rank = 3, .kernel = {2, 2, 1}, .stride = {1, 1, 1}, .dilation = {1, 1, 1}, .pad_hi = {    \
            0,                                                                                     \
            1,                                                                                     \
            0                                                                                      \
        }                                                                                          \
    }
#define CONV(text, suffix, win, g, ...)                                                            \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_CONV##suffix, .attr.conv = {.window = win, .groups = g},    \
        .n_in = 2, __VA_ARGS__                                                                     \
    }
#define CONV_DX(text, win, g, t0, t1, t2, ...)                                                     \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_CONV_DX,                                                    \
        .attr.conv = {.window = win, .groups = g, .target = {t0, t1, t2}}, .n_in = 2, __VA_ARGS__  \
    }
/* x[2,3,5,4] -> y[2,3,3,3] */
#define WINDOW_POOL                                                                                \
    {                                                                                              \
        .rank = 2, .kernel = {3, 2}, .stride = {2, 2}, .dilation = {1, 1}, .pad_lo = {1, 1},       \
        .pad_hi = {                                                                                \
            1,                                                                                     \
            1                                                                                      \
        }                                                                                          \
    }
#define WINDOW_POOL_1D                                                                             \
    {                                                                                              \
        .rank = 1, .kernel = {2}, .stride = {1}, .dilation = {2}, .pad_lo = { 1 }                  \
    }
#define POOL(text, win, max, count, ...)                                                           \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_POOL,                                                       \
        .attr.pool = {.window = win, .is_max = max, .count_padding = count}, .n_in = 1,            \
        __VA_ARGS__                                                                                \
    }

/* What a maximum pool's gradient is checked against: the pool itself. */
static esp_status_t build_pool(esp_builder_t *builder, const esp_attr_t *attr,
                               const esp_tensor_id_t *in, esp_tensor_id_t *y_out, esp_diag_t *diag)
{
    return esp_builder_op(builder, ESP_KIND_POOL, attr, 1, in, "pool", y_out, diag);
}

static const kind_example_t examples[] = {
    /* ---- contraction ---- */
    CONTRACT("matrix product", "mk", "kn", "mn", .in = {IN(2, 3, 4), IN(2, 4, 5)},
             .extents = {3, 4, 5}),
    CONTRACT("weight gradient", "km", "kn", "mn", .in = {IN(2, 6, 2), IN(2, 6, 3)},
             .extents = {6, 2, 3}),
    CONTRACT("leading axes merge", "bsh", "hk", "bsk", .in = {IN(3, 2, 6, 3), IN(2, 3, 4)},
             .extents = {12, 3, 4}),
    CONTRACT("batched product", "bmk", "bkn", "bmn", .in = {IN(3, 2, 3, 4), IN(3, 2, 4, 3)},
             .extents = {2, 3, 4, 3}),
    CONTRACT("attention scores", "bshd", "bthd", "bhst",
             .in = {IN(4, 2, 3, 4, 2), IN(4, 2, 5, 4, 2)}, .extents = {2, 3, 4, 2, 5}),
    CONTRACT("heads merge on both sides", "bhd", "hdo", "bo",
             .in = {IN(3, 2, 3, 4), IN(3, 3, 4, 5)}, .extents = {2, 12, 5}),
    CONTRACT("label of one input", "ab", "bc", "c", .in = {IN(2, 3, 4), IN(2, 4, 5)},
             .extents = {3, 4, 5}),
    CONTRACT("all labels alone", "xay", "cz", "a", .in = {IN(3, 2, 3, 2), IN(2, 4, 1)},
             .extents = {2, 3, 2, 4}),
    CONTRACT("outer product", "a", "b", "ab", .in = {IN(1, 4), IN(1, 3)}, .extents = {4, 3}),
    CONTRACT("element by element", "ab", "ab", "ab", .in = {IN(2, 3, 4), IN(2, 3, 4)},
             .extents = {12}),
    CONTRACT("dot product", "ab", "ab", "", .in = {IN(2, 3, 4), IN(2, 3, 4)}, .extents = {12}),
    CONTRACT("transposed result", "ab", "", "ba", .in = {IN(2, 3, 4), IN(0, 0)}, .extents = {3, 4}),
    CONTRACT("scalars", "", "", "", .in = {IN(0, 0), IN(0, 0)}),
    CONTRACT("empty sum", "mk", "kn", "mn", .in = {IN(2, 3, 0), IN(2, 0, 2)}),

    /* ---- convolution ---- */
    CONV("conv 1-D", , WINDOW_1D, 1, .in = {IN(3, 3, 2, 7), IN(3, 3, 2, 3)}, .extents = {3, 3, 2}),
    CONV("conv 2-D in groups", , WINDOW_2D, 2, .in = {IN(4, 2, 4, 5, 6), IN(4, 6, 2, 3, 2)},
         .extents = {2, 2, 3, 2}),
    CONV("conv 3-D depthwise", , WINDOW_3D, 3, .in = {IN(5, 1, 3, 3, 2, 3), IN(5, 3, 1, 2, 2, 1)},
         .extents = {3}),
    CONV_DX("conv_dx 1-D", WINDOW_1D, 1, 7, 0, 0, .in = {IN(3, 3, 3, 3), IN(3, 3, 2, 3)},
            .extents = {3, 3, 2}),
    CONV_DX("conv_dx 2-D in groups", WINDOW_2D, 2, 5, 6, 0,
            .in = {IN(4, 2, 6, 2, 5), IN(4, 6, 2, 3, 2)}, .extents = {2, 2, 3, 2}),
    CONV_DX("conv_dx 3-D depthwise", WINDOW_3D, 3, 3, 2, 3,
            .in = {IN(5, 1, 3, 2, 2, 3), IN(5, 3, 1, 2, 2, 1)}, .extents = {3}),
    CONV("conv_dw 1-D", _DW, WINDOW_1D, 1, .in = {IN(3, 3, 2, 7), IN(3, 3, 3, 3)},
         .extents = {3, 3, 2}),
    CONV("conv_dw 2-D in groups", _DW, WINDOW_2D, 2, .in = {IN(4, 2, 4, 5, 6), IN(4, 2, 6, 2, 5)},
         .extents = {2, 2, 3, 2}),
    CONV("conv_dw 3-D depthwise", _DW, WINDOW_3D, 3,
         .in = {IN(5, 1, 3, 3, 2, 3), IN(5, 1, 3, 2, 2, 3)}, .extents = {3}),

    /* ---- pooling ---- */
    POOL("maximum", WINDOW_POOL, 1, 0, .in = {IN(4, 2, 3, 5, 4)}, .extents = {6}),
    POOL("average", WINDOW_POOL, 0, 0, .in = {IN(4, 2, 3, 5, 4)}, .extents = {6}),
    POOL("average with padding", WINDOW_POOL, 0, 1, .in = {IN(4, 2, 3, 5, 4)}, .extents = {6}),
    POOL("dilated maximum", WINDOW_POOL_1D, 1, 0, .in = {IN(3, 2, 2, 5)}, .extents = {4}),
    {.name = "gradient of the average",
     .kind = ESP_KIND_POOL_GRAD,
     .attr.pool = {.window = WINDOW_POOL, .target = {5, 4}},
     .n_in = 1,
     .in = {IN(4, 2, 3, 3, 3)},
     .extents = {6}},
    {.name = "gradient of the maximum",
     .kind = ESP_KIND_POOL_GRAD,
     .attr.pool = {.window = WINDOW_POOL, .is_max = 1},
     .n_in = 3,
     .in = {IN(4, 2, 3, 5, 4), IN(4, 2, 3, 3, 3), IN(4, 2, 3, 3, 3)},
     .extents = {6},
     .build = build_pool},

    /* ---- element-wise: broadcasting (every code is in test_eltwise.c) ---- */
    ELT2("sum without broadcast", ADD, .in = {IN(3, 2, 3, 4), IN(3, 2, 3, 4)}, .extents = {24}),
    ELT2("bias", ADD, .in = {IN(3, 2, 3, 4), IN(1, 4)}, .extents = {6, 4}),
    ELT2("bias of channels", ADD, .in = {IN(4, 2, 4, 3, 2), IN(3, 4, 1, 1)}, .extents = {2, 4, 6}),
    ELT2("product that grows both", MUL, .in = {IN(2, 4, 1), IN(2, 1, 6)}, .extents = {4, 6}),
    ELT2("quotient with a scalar", DIV, .in = {IN(2, 4, 3), {.rank = 0, .lo = 1, .hi = 2}},
         .extents = {12}),
    ELT2("scalar minus tensor", SUB, .in = {IN(0, 0), IN(2, 4, 2)}, .extents = {8}),
    ELT2("axis of one between two", MUL, .in = {IN(3, 4, 1, 3), IN(3, 4, 1, 3)}, .extents = {12}),
    ELT2("alternating", MUL, .in = {IN(4, 2, 1, 3, 1), IN(4, 1, 4, 1, 2)}, .extents = {2, 4, 3, 2}),
    ELT2("empty", MUL, .in = {IN(2, 0, 3), IN(1, 3)}),
    {.name = "sum of five",
     .kind = ESP_KIND_ELTWISE,
     .attr.eltwise = {.code = ESP_ELT_ADD},
     .n_in = 5,
     .in = {IN(2, 2, 4), IN(1, 4), IN(2, 2, 1), IN(0, 0), IN(2, 2, 4)},
     .extents = {2, 4}},
    {.name = "sum of one",
     .kind = ESP_KIND_ELTWISE,
     .attr.eltwise = {.code = ESP_ELT_ADD},
     .n_in = 1,
     .in = {IN(2, 2, 4)},
     .extents = {8}},
    {.name = "where with a small mask",
     .kind = ESP_KIND_ELTWISE,
     .attr.eltwise = {.code = ESP_ELT_WHERE},
     .n_in = 3,
     .in = {{.dtype = ESP_DTYPE_BOOL, .rank = 2, .dims = {3, 4}}, IN(3, 2, 3, 4), IN(0, 0)},
     .extents = {2, 12}},

/* ---- reduction ---- */
#define REDUCE(text, c, bits, k, ...)                                                              \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_REDUCE,                                                     \
        .attr.reduce = {.code = ESP_REDUCE_##c, .axes = bits, .keep = k}, .n_in = 1, __VA_ARGS__   \
    }
    REDUCE("sum of the last axis", SUM, 4, 0, .in = {IN(3, 2, 3, 4)}, .extents = {6, 4}),
    REDUCE("sum of the middle axis, kept", SUM, 2, 1, .in = {IN(3, 2, 6, 4)}, .extents = {2, 6, 4}),
    REDUCE("sum of two adjacent axes", SUM, 6, 0, .in = {IN(4, 2, 3, 2, 3)}, .extents = {2, 6, 3}),
    REDUCE("sum of all", SUM, 7, 0, .in = {IN(3, 2, 3, 4)}, .extents = {24}),
    REDUCE("sum of nothing", SUM, 0, 0, .in = {IN(2, 3, 4)}, .extents = {12}),
    REDUCE("sum of an empty axis", SUM, 2, 0, .in = {IN(2, 3, 0)}),
    REDUCE("squares", SUMSQ, 5, 0, .in = {IN(3, 2, 3, 4)}, .extents = {2, 3, 4}),
    REDUCE("maximum of the last axis", MAX, 4, 0, .in = {IN(3, 2, 3, 4)}, .extents = {6}),
    REDUCE("maximum of the first axis, kept", MAX, 1, 1, .in = {IN(3, 4, 3, 2)}, .extents = {6}),
    REDUCE("minimum of the outer axes", MIN, 5, 0, .in = {IN(3, 2, 4, 3)}, .extents = {4}),

/* ---- views ---- */
#define SHAPE(text, k, r, d, ...)                                                                  \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_##k, .attr.shape = {.rank = r, .dims = d}, .n_in = 1,       \
        __VA_ARGS__                                                                                \
    }
#define DIMS(...)                                                                                  \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }
    SHAPE("reshape", RESHAPE, 2, DIMS(6, 4), .in = {IN(3, 2, 3, 4)}, .extents = {24}),
    SHAPE("reshape to a scalar", RESHAPE, 0, DIMS(0), .in = {IN(2, 1, 1)}),
    SHAPE("expand in front", EXPAND, 3, DIMS(4, 2, 3), .in = {IN(2, 2, 3)}, .extents = {4, 6}),
    SHAPE("expand the middle", EXPAND, 3, DIMS(2, 4, 3), .in = {IN(3, 2, 1, 3)},
          .extents = {2, 4, 3}),
    SHAPE("expand a scalar", EXPAND, 2, DIMS(4, 3), .in = {IN(0, 0)}, .extents = {12}),
    SHAPE("expand nothing", EXPAND, 2, DIMS(4, 3), .in = {IN(2, 4, 3)}, .extents = {12}),
#define TRANSPOSE(text, p, ...)                                                                    \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_TRANSPOSE, .attr.transpose = {.perm = p}, .n_in = 1,        \
        __VA_ARGS__                                                                                \
    }
    TRANSPOSE("transpose", DIMS(1, 0), .in = {IN(2, 4, 6)}, .extents = {4, 6}),
    TRANSPOSE("heads before positions", DIMS(0, 2, 1, 3), .in = {IN(4, 2, 3, 4, 2)},
              .extents = {2, 3, 4, 2}),
    TRANSPOSE("axes that stay together", DIMS(2, 0, 1), .in = {IN(3, 2, 4, 3)}, .extents = {8, 3}),
    TRANSPOSE("an axis of one in between", DIMS(0, 2, 1), .in = {IN(3, 4, 1, 3)}, .extents = {12}),
#define SLICE(text, s, st, c, ...)                                                                 \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_SLICE, .attr.slice = {.start = s, .step = st, .count = c},  \
        .n_in = 1, __VA_ARGS__                                                                     \
    }
    SLICE("middle piece of three", DIMS(0, 4), DIMS(1, 1), DIMS(2, 4), .in = {IN(2, 2, 12)},
          .extents = {2, 4}),
    SLICE("keys of a fused projection", DIMS(0, 6, 0), DIMS(1, 1, 1), DIMS(2, 6, 2),
          .in = {IN(3, 2, 18, 2)}, .extents = {2, 12}),
    SLICE("queries of uneven pieces", DIMS(0, 0), DIMS(1, 1), DIMS(3, 4), .in = {IN(2, 3, 8)},
          .extents = {3, 4}),
    SLICE("values of uneven pieces", DIMS(0, 6), DIMS(1, 1), DIMS(3, 2), .in = {IN(2, 3, 8)},
          .extents = {3, 2}),
    SLICE("a window", DIMS(1, 2), DIMS(1, 1), DIMS(3, 4), .in = {IN(2, 5, 7)}),
    SLICE("every second", DIMS(0, 1), DIMS(1, 2), DIMS(2, 4), .in = {IN(2, 2, 8)}, .extents = {8}),
    SLICE("some of every second", DIMS(0, 1), DIMS(1, 2), DIMS(4, 3), .in = {IN(2, 4, 8)},
          .extents = {4}),
    SLICE("backwards", DIMS(3, 6), DIMS(-1, -2), DIMS(4, 3), .in = {IN(2, 4, 8)}),
    SLICE("one position", DIMS(0, 2, 0), DIMS(1, 5, 1), DIMS(2, 1, 3), .in = {IN(3, 2, 4, 3)},
          .extents = {2, 3}),
    SLICE("nothing", DIMS(0, 2), DIMS(1, 1), DIMS(3, 0), .in = {IN(2, 3, 4)}),
#define PAD(text, l, h, b, v, ...)                                                                 \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_PAD,                                                        \
        .attr.pad = {.lo = l, .hi = h, .between = b, .value = v}, .n_in = 1, __VA_ARGS__           \
    }
    PAD("zeros around", DIMS(0, 1), DIMS(0, 2), DIMS(0, 0), 0, .in = {IN(2, 4, 3)}, .extents = {4}),
    PAD("a piece of three", DIMS(0, 4), DIMS(0, 4), DIMS(0, 0), 0, .in = {IN(2, 2, 4)},
        .extents = {2, 4}),
    PAD("a value", DIMS(0, 2, 0), DIMS(0, 4, 0), DIMS(0, 0, 0), 1.5, .in = {IN(3, 3, 2, 2)},
        .extents = {3, 4}),
    PAD("between", DIMS(0, 1), DIMS(0, 0), DIMS(0, 1), 0, .in = {IN(2, 2, 4)}, .extents = {8}),
    PAD("between and around", DIMS(1, 1), DIMS(0, 3), DIMS(1, 2), -1, .in = {IN(2, 2, 4)}),
    PAD("nothing", DIMS(0, 0), DIMS(0, 0), DIMS(0, 3), 0, .in = {IN(2, 4, 1)}, .extents = {4}),
#define CONCAT(text, a, n, ...)                                                                    \
    {                                                                                              \
        .name = text, .kind = ESP_KIND_CONCAT, .attr.axis = {.axis = a}, .n_in = n, __VA_ARGS__    \
    }
    CONCAT("equal pieces", 1, 3, .in = {IN(2, 2, 4), IN(2, 2, 4), IN(2, 2, 4)}, .extents = {2, 4}),
    CONCAT("uneven pieces", 1, 2, .in = {IN(3, 3, 4, 2), IN(3, 3, 2, 2)}, .extents = {3, 4}),
    CONCAT("along the first axis", 0, 2, .in = {IN(2, 3, 4), IN(2, 2, 4)}, .extents = {4}),
    CONCAT("along the last axis", 2, 2, .in = {IN(3, 2, 3, 1), IN(3, 2, 3, 2)}, .extents = {6}),
    CONCAT("one piece", 1, 1, .in = {IN(2, 2, 6)}, .extents = {2, 6}),
    CONCAT("an empty piece", 1, 3, .in = {IN(2, 2, 2), IN(2, 2, 0), IN(2, 2, 4)},
           .extents = {2, 2}),
};

kind_examples_t kind_examples_a(void)
{
    return (kind_examples_t){examples, sizeof examples / sizeof examples[0]};
}
