// Package clients drives sqlbrain with what etcd's Go client builds on the plain
// calls: mutexes, software transactional memory, and the leasing,
// ordering, namespace and mirror wrappers. Programs use etcd through them, and
// they lean on details (order of create revisions, headers, lease ends) that no
// single call shows.
package clients
