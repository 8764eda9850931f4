// Package compose tests what people start first: docker-compose.yml and Dockerfile.
// Docker Compose and golang-migrate's command are built from source, so that tests run
// the versions that go.mod files name (Compose: ../../programs/compose), not those that
// happen to be installed.
//
// The tests need a Docker engine (20.10 or later, as DOCKER_HOST or the default socket
// says), and without one are skipped; with SQLBRAIN_REQUIRE_ENGINES=1 they fail instead.
// TestConfig needs none.
//
// Images are taken from the engine and never pulled:
//
//	MySQL           sqlbrain-standin/mysql:9, which .ci/images makes, else mysql:9
//	Go              golang:1.26, else a stand-in made of this machine's Go
//	the base of kine  alpine:3.22, else a stand-in of this machine's shell
//	migrate         migrate/migrate of go.mod's version, else a stand-in of the same source
//
// The stand-ins sqlbrain-standin/golang and sqlbrain-standin/migrate stay for the next
// run, and so does BuildKit's cache; the first run takes minutes longer. The one for
// golang is made of this machine's Go, of the modules, so that nothing is downloaded
// during the build, and of what this machine has compiled of them. TiDB's is made of the
// program that SQLBRAIN_TEST_TIDB_SERVER names, without which TestTiDBProfile is skipped;
// those of PD and TiKV do nothing. The images of Prometheus and Grafana are not stood in for:
// TestMonitoringConfig reads what Compose makes of the profile.
//
// All else is removed in the end: a project's containers, networks, volumes and image,
// also those left over from a killed run.
//
// Start reading at mysql_test.go, then project_test.go and standin_test.go.
package compose
