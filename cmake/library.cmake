# The library: every src/<module>/**.c but the command. Compiled once; linked as a shared library
# that exports the public interface, and as a static one with all internal symbols for the tests.
file(GLOB_RECURSE esp_sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/*.c)
list(FILTER esp_sources EXCLUDE REGEX "^${PROJECT_SOURCE_DIR}/src/cli/")

# The device catalogue travels inside the library.
include(cmake/embed.cmake)
set(esp_catalogue ${PROJECT_BINARY_DIR}/devices_yaml.c)
esp_embed(${esp_catalogue} ${PROJECT_SOURCE_DIR}/clusters/devices.yaml esp_i_devices_yaml)
list(APPEND esp_sources ${esp_catalogue})

add_library(espalier_objects OBJECT ${esp_sources})
target_include_directories(espalier_objects PRIVATE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(espalier_objects PRIVATE espalier_flags espalier_dependencies)

add_library(espalier SHARED $<TARGET_OBJECTS:espalier_objects>)
set(esp_version_script ${PROJECT_SOURCE_DIR}/cmake/libespalier.map)
set_target_properties(espalier PROPERTIES
  VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR} LINKER_LANGUAGE C
  LINK_DEPENDS ${esp_version_script})
target_link_options(espalier PRIVATE -Wl,--version-script=${esp_version_script})
if(NOT ESP_SANITIZE) # a sanitized library finds its runtime in the program
  target_link_options(espalier PRIVATE -Wl,--no-undefined)
endif()
target_include_directories(espalier INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(espalier PRIVATE espalier_flags espalier_dependencies)

add_library(espalier_static STATIC EXCLUDE_FROM_ALL $<TARGET_OBJECTS:espalier_objects>)
set_target_properties(espalier_static PROPERTIES LINKER_LANGUAGE C)
target_include_directories(espalier_static INTERFACE ${PROJECT_SOURCE_DIR}/src)
target_link_libraries(espalier_static PUBLIC espalier_flags espalier_dependencies)
