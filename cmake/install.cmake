install(TARGETS espalier LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(DIRECTORY include/espalier DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING
  PATTERN "*.h" PATTERN "*.def")
# The .pc file names its prefix relative to itself, so that an installed tree can be moved.
string(REGEX REPLACE "[^/]+" ".." ESP_PC_UP "${CMAKE_INSTALL_LIBDIR}")
configure_file(cmake/libespalier.pc.in libespalier.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/libespalier.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})
foreach(esp_data clusters models) # what the command finds by name
  if(EXISTS ${PROJECT_SOURCE_DIR}/${esp_data})
    install(DIRECTORY ${esp_data} DESTINATION ${CMAKE_INSTALL_DATADIR}/espalier)
  endif()
endforeach()
