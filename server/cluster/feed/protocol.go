package feed

import (
	"github.com/sqlbrain/sqlbrain/server/cluster/feed/feedpb"
	"github.com/sqlbrain/sqlbrain/server/cluster/member"
)

// protocolsToSend and protocolsOf convert the protocols of a member. A member of an earlier version sends none.
func protocolsToSend(p member.Protocols) *feedpb.Protocols {
	return &feedpb.Protocols{Newest: uint32(p.Newest), Oldest: uint32(p.Oldest)}
}

func protocolsOf(m *feedpb.Protocols) member.Protocols {
	return member.Protocols{Newest: int(m.GetNewest()), Oldest: int(m.GetOldest())}
}
