// Which runtimes serve which service. A service that is destroyed before such a runtime ends the
// program with a sentence: its handlers would run in freed memory.
#pragma once

#include <memory>

#include <weft/service.h>

namespace weft::api {

class Node;

// From here on `node` calls what `service` registered. Thread: any, like all of these.
void note_served(const Service& service, const std::weak_ptr<Node>& node);
// Its end: it calls none any more.
void forget_served(const Node& node);

}  // namespace weft::api
