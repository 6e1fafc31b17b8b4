# test_onnx_oracle compares our reader of ONNX files with protobuf-c. The schema is that of the system
# (libonnx-dev or python3-onnx); without it, or without protoc-c, the test skips itself.
find_file(ONNX_PROTO onnx/onnx.proto
  PATHS /usr/include /usr/lib/python3/dist-packages NO_CACHE)
if(TARGET test_onnx_oracle AND ONNX_PROTO AND PROTOC_C AND TARGET PkgConfig::PROTOBUF_C)
  set(esp_oracle ${PROJECT_BINARY_DIR}/onnx.pb-c)
  get_filename_component(esp_proto_directory ${ONNX_PROTO} DIRECTORY)
  add_custom_command(OUTPUT ${esp_oracle}.c ${esp_oracle}.h
    COMMAND ${PROTOC_C} --proto_path=${esp_proto_directory} --c_out=${PROJECT_BINARY_DIR} onnx.proto
    DEPENDS ${ONNX_PROTO} VERBATIM)
  set_source_files_properties(${esp_oracle}.c PROPERTIES COMPILE_OPTIONS -w)
  target_sources(test_onnx_oracle PRIVATE ${esp_oracle}.c ${esp_oracle}.h)
  target_include_directories(test_onnx_oracle SYSTEM PRIVATE ${PROJECT_BINARY_DIR})
  target_compile_definitions(test_onnx_oracle PRIVATE ESP_ONNX_ORACLE)
  target_link_libraries(test_onnx_oracle PRIVATE PkgConfig::PROTOBUF_C)
endif()
