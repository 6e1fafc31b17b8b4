# Every tests/test_*.c is a cmocka program and a test of the same name; every tests/test_*.sh a test
# that finds the command in $ESP_CLI and may end with 77: skipped. All other tests/*.c are helpers that
# each program links.
set(ESP_TEST_TIMEOUT 300 CACHE STRING "seconds that one test may take")
set(esp_test_environment
  "ASAN_OPTIONS=detect_leaks=1:allocator_may_return_null=1" "UBSAN_OPTIONS=print_stacktrace=1"
  "ESP_SOURCE_DIR=${PROJECT_SOURCE_DIR}")
if(TARGET espalier_cli)
  list(APPEND esp_test_environment "ESP_CLI=$<TARGET_FILE:espalier_cli>")
endif()

# Options after the name and the command: further properties of the test.
function(esp_add_test name)
  add_test(NAME ${name} COMMAND ${ARGN} WORKING_DIRECTORY ${PROJECT_BINARY_DIR})
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ESP_TEST_TIMEOUT}
    ENVIRONMENT "${esp_test_environment}")
endfunction()

file(GLOB esp_test_helpers CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/*.c)
set(esp_test_sources ${esp_test_helpers})
list(FILTER esp_test_sources INCLUDE REGEX "/test_[^/]*$")
list(FILTER esp_test_helpers EXCLUDE REGEX "/test_[^/]*$")

add_library(espalier_test_flags INTERFACE)
target_include_directories(espalier_test_flags INTERFACE ${PROJECT_SOURCE_DIR}/tests)
target_compile_definitions(espalier_test_flags INTERFACE ESP_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
if(TARGET espalier_cli)
  target_compile_definitions(espalier_test_flags INTERFACE
    ESP_CLI="$<TARGET_FILE:espalier_cli>")
endif()
target_link_libraries(espalier_test_flags INTERFACE espalier_static PkgConfig::CMOCKA)
if(esp_test_helpers)
  add_library(espalier_test_helpers STATIC ${esp_test_helpers})
  target_link_libraries(espalier_test_helpers PUBLIC espalier_test_flags)
endif()

foreach(esp_source ${esp_test_sources})
  get_filename_component(esp_name ${esp_source} NAME_WE)
  add_executable(${esp_name} ${esp_source})
  if(TARGET espalier_test_helpers)
    target_link_libraries(${esp_name} PRIVATE espalier_test_helpers)
  else()
    target_link_libraries(${esp_name} PRIVATE espalier_test_flags)
  endif()
  if(TARGET espalier_cli)
    add_dependencies(${esp_name} espalier_cli)
  endif()
  esp_add_test(${esp_name} ${esp_name})
endforeach()

include(cmake/onnx_oracle.cmake)

# Every tests/mpi/*.c is a program that some tests/test_exec_mpi*.sh starts as a job of several ranks.
file(GLOB esp_mpi_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/mpi/*.c)
foreach(esp_source ${esp_mpi_sources})
  get_filename_component(esp_name ${esp_source} NAME_WE)
  add_executable(${esp_name} ${esp_source})
  target_link_libraries(${esp_name} PRIVATE espalier_test_helpers)
endforeach()
list(APPEND esp_test_environment "ESP_MPI_PROGRAMS=${PROJECT_BINARY_DIR}")

file(GLOB esp_test_scripts CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/test_*.sh)
foreach(esp_source ${esp_test_scripts})
  get_filename_component(esp_name ${esp_source} NAME_WE)
  esp_add_test(${esp_name} sh ${esp_source})
  set_tests_properties(${esp_name} PROPERTIES SKIP_RETURN_CODE 77)
endforeach()
# `make check-full` makes more of these.
set_tests_properties(test_exec_emulated test_exec_kill PROPERTIES TIMEOUT 1200)

# Every examples/*.c is a program on the public interface, built and run.
file(GLOB esp_examples CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/examples/*.c)
foreach(esp_source ${esp_examples})
  get_filename_component(esp_name ${esp_source} NAME_WE)
  add_executable(example_${esp_name} ${esp_source})
  target_link_libraries(example_${esp_name} PRIVATE espalier_flags espalier)
endforeach()
if(TARGET example_plan)
  esp_add_test(example_plan example_plan ${PROJECT_SOURCE_DIR}/models/vgg19.onnx
    ${PROJECT_SOURCE_DIR}/clusters/testbed.yaml ${PROJECT_BINARY_DIR}/example_plan.json)
endif()
if(TARGET example_cluster)
  esp_add_test(example_cluster example_cluster)
endif()

# The rules that are machines: layers, licences, symbols, format.
foreach(esp_check layers licences symbols format)
  if(EXISTS ${PROJECT_SOURCE_DIR}/tools/check_${esp_check})
    esp_add_test(check_${esp_check} ${PROJECT_SOURCE_DIR}/tools/check_${esp_check}
      $<TARGET_FILE:espalier>)
  endif()
endforeach()

# A C and a C++ program against the installed tree.
if(EXISTS ${PROJECT_SOURCE_DIR}/tests/install/run)
  esp_add_test(install ${PROJECT_SOURCE_DIR}/tests/install/run
    ${CMAKE_COMMAND} ${PROJECT_BINARY_DIR} ${CMAKE_C_COMPILER} ${esp_sanitize_flags})
endif()
