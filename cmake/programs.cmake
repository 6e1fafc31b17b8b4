# The command: src/cli/*.c on the public headers and the shared library only.
file(GLOB_RECURSE esp_cli_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/cli/*.c)
if(esp_cli_sources)
  add_executable(espalier_cli ${esp_cli_sources})
  set_target_properties(espalier_cli PROPERTIES
    OUTPUT_NAME espalier INSTALL_RPATH "$ORIGIN/../${CMAKE_INSTALL_LIBDIR}")
  target_include_directories(espalier_cli PRIVATE ${PROJECT_SOURCE_DIR}/src/cli)
  target_link_libraries(espalier_cli PRIVATE espalier_flags espalier m)
  install(TARGETS espalier_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
endif()

# Bench programs: bench/bench_*.c, each on its own; `ninja benches`.
add_custom_target(benches)
file(GLOB esp_bench_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/bench_*.c)
file(GLOB esp_bench_common CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/bench/*.c)
list(FILTER esp_bench_common EXCLUDE REGEX "/bench_[^/]*$")
foreach(esp_source ${esp_bench_sources})
  get_filename_component(esp_name ${esp_source} NAME_WE)
  add_executable(${esp_name} EXCLUDE_FROM_ALL ${esp_source} ${esp_bench_common})
  target_include_directories(${esp_name} PRIVATE ${PROJECT_SOURCE_DIR}/bench)
  target_compile_definitions(${esp_name} PRIVATE ESP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
  target_link_libraries(${esp_name} PRIVATE espalier_static)
  add_dependencies(benches ${esp_name})
endforeach()

# The table of results: on the public headers, as a user's program would be.
add_executable(results_table EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/bench/results_table/results.c)
target_link_libraries(results_table PRIVATE espalier_flags espalier m)
