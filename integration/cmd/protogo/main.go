// Command protogo writes the Go code of a .proto file next to it. The argument is the
// file's path from the root of the repository. The compiler and the two plugins are
// those of this module's go.mod.
package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

// plugins are the generators with their parameters.
var plugins = map[string]string{
	"protoc-gen-go":      "paths=source_relative",
	"protoc-gen-go-grpc": "paths=source_relative,require_unimplemented_servers=false",
}

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: protogo FILE.proto")
		os.Exit(2)
	}
	if err := run(context.Background(), "..", os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "protogo:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, root, path string) error {
	files, err := generate(ctx, root, path)
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(root, name), []byte(content), 0o644); err != nil {
			return err
		}
	}
	return err
}

// generate returns the generated files of the .proto file at path, by their paths
// below root.
func generate(ctx context.Context, root, path string) (map[string]string, error) {
	compiler := protocompile.Compiler{
		Resolver:       &protocompile.SourceResolver{ImportPaths: []string{root}},
		SourceInfoMode: protocompile.SourceInfoStandard, // comments
	}
	compiled, err := compiler.Compile(ctx, path)
	if err != nil {
		return nil, err
	}
	request := &pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{path},
		ProtoFile:      []*descriptorpb.FileDescriptorProto{protodesc.ToFileDescriptorProto(compiled[0])},
	}
	files := make(map[string]string)
	for plugin, parameters := range plugins {
		request.Parameter = proto.String(parameters)
		response, err := call(ctx, plugin, request)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", plugin, err)
		}
		for _, f := range response.GetFile() {
			files[f.GetName()] = f.GetContent()
		}
	}
	return files, nil
}

func call(ctx context.Context, plugin string,
	request *pluginpb.CodeGeneratorRequest) (*pluginpb.CodeGeneratorResponse, error) {
	in, err := proto.Marshal(request)
	if err != nil {
		return nil, err
	}
	c := exec.CommandContext(ctx, "go", "tool", plugin)
	c.Stdin, c.Stderr = bytes.NewReader(in), os.Stderr
	out, err := c.Output()
	if err != nil {
		return nil, err
	}
	response := new(pluginpb.CodeGeneratorResponse)
	if err := proto.Unmarshal(out, response); err != nil {
		return nil, err
	}
	if response.Error != nil {
		return nil, fmt.Errorf("%s", response.GetError())
	}
	return response, nil
}
