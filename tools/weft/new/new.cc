// `weft new`: writes a project with a service, a client, a server and a test.
#include <cstdio>
#include <memory>
#include <string>

#include "base/text.h"
#include "commands.h"
#include "new/project.h"

namespace weft::tool {

namespace {

Json to_json(const std::string& directory) {
    Json json;
    json["directory"] = directory;
    for (const TemplateFile& file : template_files()) json["files"].push_back(file.name);
    json["error"] = nullptr;
    return json;
}

void print_next_steps(const std::string& directory) {
    const std::string shown = base::printable(directory);
    std::printf("%s:", shown.c_str());
    for (const TemplateFile& file : template_files()) {
        std::printf(" %.*s", static_cast<int>(file.name.size()), file.name.data());
    }
    std::printf("\nnext: cd %s, then run the commands of its README.md\n", shown.c_str());
}

void run(const std::string& directory, Invocation& invocation) {
    invocation.status = write_project(directory);
    if (!invocation.status.ok()) return;
    if (invocation.json) {
        invocation.answer = to_json(directory);
    } else {
        print_next_steps(directory);
    }
}

}  // namespace

void set_up_new(CLI::App& command, Invocation& invocation) {
    auto directory = std::make_shared<std::string>();
    command.description(
        "Write a project: a .proto, server, client, simulated test, CMakeLists.txt");
    command.footer("Example: weft new greeter && cd greeter && less README.md");
    command.add_option("directory", *directory, "A directory that is new or empty")->required();
    command.callback([directory, &invocation] { run(*directory, invocation); });
}

}  // namespace weft::tool
