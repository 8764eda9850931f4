package forward

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// replyTypes caches the types of the messages that methods return.
type replyTypes struct{ byMethod sync.Map }

// of returns a new message of the type that method returns.
func (t *replyTypes) of(method string) (proto.Message, error) {
	if known, ok := t.byMethod.Load(method); ok {
		return known.(protoreflect.MessageType).New().Interface(), nil
	}
	found, err := replyType(method)
	if err != nil {
		return nil, fmt.Errorf("forward: cannot forward %s: %w", method, err)
	}
	t.byMethod.Store(method, found)
	return found.New().Interface(), nil
}

// replyType finds the type that method, as in /package.Service/Method, returns in the
// descriptors that the program is linked with.
func replyType(method string) (protoreflect.MessageType, error) {
	switch method { // without descriptors; they return etcd's messages
	case RenewMethod:
		method = keepAliveMethod
	case AuthenticateMethod, RevokeMethod:
		method = authenticateMethod
	}
	service, name, ok := strings.Cut(strings.TrimPrefix(method, "/"), "/")
	if !ok {
		return nil, fmt.Errorf("not a method's name")
	}
	d, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(service))
	if err != nil {
		return nil, err
	}
	s, ok := d.(protoreflect.ServiceDescriptor)
	if !ok {
		return nil, fmt.Errorf("%s is not a service", service)
	}
	m := s.Methods().ByName(protoreflect.Name(name))
	if m == nil {
		return nil, fmt.Errorf("%s has no method %s", service, name)
	}
	return protoregistry.GlobalTypes.FindMessageByName(m.Output().FullName())
}
