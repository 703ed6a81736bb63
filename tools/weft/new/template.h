// The files of examples/template, built into the command, so that `weft new` needs no other file.
#pragma once

#include <span>
#include <string_view>

namespace weft::tool {

struct TemplateFile {
    std::string_view name;
    std::string_view text;
};

std::span<const TemplateFile> template_files();

}  // namespace weft::tool
