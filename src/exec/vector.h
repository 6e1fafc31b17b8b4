/* Loops over many elements, and how the compiler is to take them. */
#ifndef ESP_EXEC_VECTOR_H
#define ESP_EXEC_VECTOR_H

/* Such functions are compiled for wide vectors, too, and the machine's are taken when the program
 * starts. Sums keep the order that the source gives. */
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) &&                        \
    !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define ESP_I_VECTOR __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ESP_I_VECTOR
#endif

/* Before a loop whose iterations do not depend on each other, though its pointers may be equal. */
#if defined(__clang__)
#define ESP_I_INDEPENDENT
#else
#define ESP_I_INDEPENDENT _Pragma("GCC ivdep")
#endif

#endif
