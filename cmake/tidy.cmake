# `ninja tidy`: clang-tidy over our sources with .clang-tidy.
find_program(RUN_CLANG_TIDY NAMES run-clang-tidy run-clang-tidy-14)
if(RUN_CLANG_TIDY)
  add_custom_target(tidy
    COMMAND ${RUN_CLANG_TIDY} -quiet -j 2 -p ${PROJECT_BINARY_DIR} "${PROJECT_SOURCE_DIR}/src/.*"
    WORKING_DIRECTORY ${PROJECT_SOURCE_DIR} USES_TERMINAL)
endif()
