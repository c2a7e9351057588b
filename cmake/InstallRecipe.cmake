# `cmake --install BUILD --component recipe --prefix DIR`: the codec as a library for other programs. There it is
#     find_package(hadal_recipe)   target hadal::recipe
# Headers only of what a program includes; none of them needs a third-party package.
set(HADAL_RECIPE_LIBS)
foreach(leaf base_core base_tokenizer gateway_recipe gateway_openai gateway_anthropic)
  if(TARGET hadal_${leaf})
    list(APPEND HADAL_RECIPE_LIBS hadal_${leaf})
  endif()
endforeach()
install(TARGETS ${HADAL_RECIPE_LIBS} ARCHIVE DESTINATION lib COMPONENT recipe)
foreach(folder base/core base/types base/tokenizer gateway/recipe gateway/openai gateway/anthropic)
  install(DIRECTORY src/${folder}/ DESTINATION include/hadal/${folder} COMPONENT recipe
    FILES_MATCHING PATTERN "*.h" PATTERN "testdata" EXCLUDE)
endforeach()
install(FILES cmake/hadal_recipe-config.cmake DESTINATION lib/cmake/hadal_recipe COMPONENT recipe)
