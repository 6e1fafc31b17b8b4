# `ninja tidy`: clang-tidy over our sources with .clang-tidy. A source is looked at again when it, a
# header that it may include, or the configuration has changed.
find_program(CLANG_TIDY NAMES clang-tidy clang-tidy-14)
if(CLANG_TIDY)
  set(esp_tidy_all ${PROJECT_SOURCE_DIR}/.clang-tidy ${PROJECT_SOURCE_DIR}/tools/tidy_file)
  file(GLOB esp_tidy_headers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/include/espalier/*
    ${PROJECT_SOURCE_DIR}/src/base/*.h)
  file(GLOB esp_modules CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/tidy)
  set(esp_tidy_stamps)
  foreach(esp_module ${esp_modules})
    file(GLOB_RECURSE esp_module_headers CONFIGURE_DEPENDS ${esp_module}/*.h)
    file(GLOB_RECURSE esp_module_sources CONFIGURE_DEPENDS ${esp_module}/*.c)
    foreach(esp_source ${esp_module_sources})
      file(RELATIVE_PATH esp_relative ${PROJECT_SOURCE_DIR}/src ${esp_source})
      string(REPLACE "/" "-" esp_stamp ${esp_relative})
      set(esp_stamp ${PROJECT_BINARY_DIR}/tidy/${esp_stamp})
      add_custom_command(OUTPUT ${esp_stamp}
        COMMAND ${PROJECT_SOURCE_DIR}/tools/tidy_file ${CLANG_TIDY} ${PROJECT_BINARY_DIR}
                ${esp_source} ${esp_stamp}
        DEPENDS ${esp_source} ${esp_tidy_all} ${esp_tidy_headers} ${esp_module_headers}
        COMMENT "clang-tidy src/${esp_relative}" VERBATIM)
      list(APPEND esp_tidy_stamps ${esp_stamp})
    endforeach()
  endforeach()
  add_custom_target(tidy DEPENDS ${esp_tidy_stamps})
endif()
