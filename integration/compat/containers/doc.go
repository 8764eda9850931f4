// Package containers runs sqlbrain on the database servers that vendors publish as
// images: each is started by testcontainers-go, and gets the storage suite and a tour
// with the built program.
//
// Where there is no Docker, or an image is neither here nor can be pulled, a test
// is skipped and says so. With SQLBRAIN_REQUIRE_ENGINES=1 it fails, except on
// images that stand-ins cannot be made of: see image_test.go.
//
// Start reading at containers_test.go.
package containers
