# One set of flags for everything of ours; results must not depend on fused multiply-add.
add_library(espalier_flags INTERFACE)
target_compile_options(espalier_flags INTERFACE
  -Wall -Wextra -Wshadow -Wconversion -Wswitch-enum -Wstrict-prototypes -Wmissing-prototypes
  -Wvla -Werror -fvisibility=hidden -ffp-contract=off -fno-math-errno -fno-trapping-math)
if(CMAKE_C_COMPILER_ID MATCHES Clang) # stricter about enums than gcc, which is what we build with
  target_compile_options(espalier_flags INTERFACE -Wno-sign-conversion)
else() # outputs are written only on success, which gcc cannot follow through a status
  target_compile_options(espalier_flags INTERFACE -Wno-maybe-uninitialized)
endif()
target_compile_definitions(espalier_flags INTERFACE
  _DEFAULT_SOURCE _POSIX_C_SOURCE=200809L $<$<CONFIG:Debug>:ESP_DEBUG>)
target_include_directories(espalier_flags INTERFACE ${PROJECT_SOURCE_DIR}/include)
target_link_options(espalier_flags INTERFACE -Wl,--as-needed)

if(ESP_SANITIZE)
  set(esp_sanitize_flags -fsanitize=${ESP_SANITIZE} -fno-sanitize-recover=all
    -fno-omit-frame-pointer)
  target_compile_options(espalier_flags INTERFACE ${esp_sanitize_flags})
  target_link_options(espalier_flags INTERFACE ${esp_sanitize_flags})
endif()
if(ESP_FUZZ)
  target_compile_options(espalier_flags INTERFACE -fsanitize=fuzzer-no-link)
endif()
