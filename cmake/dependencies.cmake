# Third-party libraries. `espalier_dependencies` is what the library links; --as-needed drops what
# the sources present do not use.
find_package(PkgConfig REQUIRED)
find_package(Threads REQUIRED)
pkg_check_modules(JANSSON REQUIRED IMPORTED_TARGET jansson>=2.13)
pkg_check_modules(YAML REQUIRED IMPORTED_TARGET yaml-0.1)
pkg_check_modules(LIBMD REQUIRED IMPORTED_TARGET libmd)
pkg_check_modules(MPI REQUIRED IMPORTED_TARGET ompi-c)
pkg_check_modules(BLAS REQUIRED IMPORTED_TARGET openblas)
find_library(DNNL_LIBRARY dnnl REQUIRED) # has no .pc file
find_path(DNNL_INCLUDE_DIR dnnl.h REQUIRED) # computes with gomp, which is told to use one thread
find_library(METIS_LIBRARY metis REQUIRED) # has no .pc file
find_path(METIS_INCLUDE_DIR metis.h REQUIRED)
find_path(RANDOM123_INCLUDE_DIR Random123/philox.h REQUIRED)

add_library(espalier_dependencies INTERFACE)
target_include_directories(espalier_dependencies SYSTEM INTERFACE
  ${METIS_INCLUDE_DIR} ${RANDOM123_INCLUDE_DIR} ${DNNL_INCLUDE_DIR})
target_link_libraries(espalier_dependencies INTERFACE
  PkgConfig::JANSSON PkgConfig::YAML PkgConfig::LIBMD ${METIS_LIBRARY}
  PkgConfig::MPI PkgConfig::BLAS ${DNNL_LIBRARY} gomp Threads::Threads m)

if(ESP_TESTS)
  pkg_check_modules(CMOCKA REQUIRED IMPORTED_TARGET cmocka)
  # An independent reader of model files, for one differential test; optional.
  pkg_check_modules(PROTOBUF_C IMPORTED_TARGET libprotobuf-c)
  find_program(PROTOC_C protoc-c)
endif()
