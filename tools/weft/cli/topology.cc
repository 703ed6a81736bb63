#include "cli/topology.h"

#include "cli/number.h"

#include <map>
#include <string>
#include <vector>

namespace weft::tool {

void add_topology_options(CLI::App& command, Topology& into, const std::string& what) {
    static const std::map<std::string, Topology::Shape> shapes = {
        {"automatic", Topology::Shape::automatic},
        {"flat", Topology::Shape::flat},
        {"k-ary", Topology::Shape::k_ary},
        {"k-nomial", Topology::Shape::k_nomial},
        {"greedy", Topology::Shape::greedy}};
    std::vector<std::string> names;
    names.reserve(shapes.size());
    for (const auto& [name, shape] : shapes) names.push_back(name);
    command
        .add_option_function<std::string>(
            "--topology", [&into](const std::string& name) { into.shape = shapes.at(name); },
            what + "The shape of the tree; default: automatic")
        ->check(CLI::IsMember(names));
    command
        .add_option("--fanout", into.fanout,
                    what + "The fanout of k-ary, k-nomial and greedy trees")
        ->transform(whole_number(2, 64))
        ->capture_default_str();
    command.add_flag("--by-host", into.by_host,
                     what + "The first rank of each host forwards to the other ranks of that host");
}

}  // namespace weft::tool
