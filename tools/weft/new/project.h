// Writes a new project from the template that is built into the command.
#pragma once

#include <string>

#include <weft/status.h>

#include "new/template.h"

namespace weft::tool {

// Writes the files of the template into `directory`, which is created unless it exists and is
// empty. Blocks. Errors: ALREADY_EXISTS when the directory has entries, else as
// storage::errno_status(); the text names the file, and files that were written before it stay.
Status write_project(const std::string& directory);

}  // namespace weft::tool
