// `weft group tree`: the tree of a collective.
#include <cstdio>
#include <optional>

#include "cli/number.h"
#include "cli/topology.h"
#include "coll/choose_tree.h"
#include "group/group.h"

namespace weft::tool {

namespace {

struct TreeOptions {
    std::string file;
    std::optional<std::uint32_t> root;
    Topology topology;
};

struct Drawing {
    const coll::RankOrder& rank_order;
    const coll::Tree& tree;

    Json children_of(coll::Interval below) const {
        Json children = Json::array();
        for (const coll::Interval child : coll::split(below, tree, rank_order.hosts())) {
            Json one;
            one["rank"] = rank_order.at(child.first).rank;
            one["tells"] = children_of({child.first + 1, child.last});
            children.push_back(std::move(one));
        }
        return children;
    }
    void draw(coll::Interval below, const std::string& in_front) const {
        const std::vector<coll::Interval> children = coll::split(below, tree, rank_order.hosts());
        for (std::size_t i = 0; i < children.size(); ++i) {
            const bool is_last = i + 1 == children.size();
            std::printf("%s%s %u\n", in_front.c_str(), is_last ? "└─" : "├─",
                        rank_order.at(children[i].first).rank);
            draw({children[i].first + 1, children[i].last}, in_front + (is_last ? "   " : "│  "));
        }
    }
};

Status show(const TreeOptions& options, Invocation& invocation) {
    Result<GroupView> view = GroupView::load(options.file);
    if (!view) return std::move(view).status();
    RankSet ranks;
    std::uint32_t size = 0, root_index = 0;
    for (const Member& member : view->members()) {
        if (member.draining) continue;
        if (options.root == member.rank) root_index = size;
        ranks.add(member.rank);
        ++size;
    }
    if (size == 0) return fail(Code::invalid_argument, "no rank takes part: all are draining");
    if (options.root && !ranks.contains(*options.root)) {
        return fail(Code::not_found, "no rank " + std::to_string(*options.root) +
                                         " takes part in group '" + view->name() + "'");
    }
    const coll::Tree tree = coll::tree_of(options.topology, coll::Costs(), size, 0);
    const coll::RankOrder rank_order({*view, ranks.ranges(), root_index, options.topology.by_host});
    const coll::Interval below{options.root ? 1u : 0u, size};
    if (!tree.is_possible(below)) {
        return fail(Code::invalid_argument, "no tree of this shape has " + std::to_string(size) +
                                                " ranks; --help has the bounds");
    }
    const Drawing drawing{rank_order, tree};
    if (invocation.json) {
        Json json;
        json["root"] = options.root ? Json(*options.root) : Json(nullptr);
        json["tells"] = drawing.children_of(below);
        invocation.answer = std::move(json);
    } else {
        std::printf("%s\n", options.root ? std::to_string(*options.root).c_str() : "client");
        drawing.draw(below, "");
    }
    return {};
}

}  // namespace

void set_up_group_tree(CLI::App& command, Invocation& invocation) {
    auto options = std::make_shared<TreeOptions>();
    command.description("Draw the tree along which a collective of the group is forwarded");
    command.footer(
        "The root is a client outside of the group, unless --root names a member. An automatic "
        "tree "
        "is that of a\ngroup without measurements.\n"
        "Example: weft group tree --group store.json --topology k-nomial --fanout 4");
    add_group_option(command, options->file);
    command
        .add_option("--root", options->root,
                    "The root's rank; default: a client outside of the group")
        ->transform(rank_number());
    add_topology_options(command, options->topology);
    command.callback([options, &invocation] { invocation.status = show(*options, invocation); });
}

}  // namespace weft::tool
