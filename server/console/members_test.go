package console

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/cluster/member"
	"github.com/sqlbrain/sqlbrain/server/quota"
	"github.com/sqlbrain/sqlbrain/server/replica"
)

// testNode is member 1 of a cluster that member 2 leads.
type testNode struct{}

func (testNode) ClusterID() uint64      { return 7 }
func (testNode) MemberID() uint64       { return 1 }
func (testNode) Status() replica.Status { return replica.Status{Leader: 2, Revision: 9} }
func (testNode) All() []quota.Alarm     { return nil }

type openKeys struct{ Keys }

func (openKeys) Admit(context.Context) error { return nil }

// TestMembersThatDoNotAnswerAreShown: a process that was killed is alive by its heartbeats for some seconds yet.
func TestMembersThatDoNotAnswerAreShown(t *testing.T) {
	all := []member.Member{
		{ID: 1, Name: "self", Alive: true, ClientURLs: []string{"http://n1:2379"}},
		{ID: 2, Name: "killed", Alive: true, ClientURLs: []string{"http://n2:2379"}},
		{ID: 4, Name: "with console", Alive: true, ClientURLs: []string{"unix:///run/n4", "https://n4:2379"}},
		{ID: 5, Name: "without", Alive: true, ClientURLs: []string{"http://n5:2379"}},
		{ID: 6, Name: "stopped", Stopped: true},
		{ID: 7, Name: "lost"},
		{ID: 8},
	}
	h := testHandler(func(c *Config) {
		c.Keys, c.Node, c.Alarms, c.Metrics = openKeys{}, testNode{}, testNode{}, prometheus.NewRegistry()
		c.Members = func() []member.Member { return all }
		c.Figures = func(_ context.Context, id uint64) (map[string]float64, error) {
			switch id {
			case 2:
				return nil, errors.New("connection refused")
			case 4:
				return figuresOf(metricsBody{Values: map[string]float64{}}, 5, true), nil
			}
			return figuresOf(metricsBody{Values: map[string]float64{"leases": 3}}, 5, false), nil
		}
	})
	w := visit(t.Context(), h, "192.0.2.1", "members")
	require.Equal(t, http.StatusOK, w.Code)
	var got []memberBody
	require.NoError(t, json.Unmarshal(w.Body.Bytes(), &got))
	states, consoles := map[string]string{}, map[string]string{}
	for _, m := range got {
		states[m.Name] = m.State
		if m.Console != "" {
			consoles[m.Name] = m.Console
		}
		require.Equal(t, m.Name == "killed", m.Leader)
		require.Equal(t, m.Name == "self", m.Self)
	}
	require.Equal(t, map[string]string{
		"self": memberAlive, "killed": memberSilent, "with console": memberAlive, "without": memberAlive,
		"stopped": memberStopped, "lost": memberLost, "": memberNew,
	}, states)
	require.Equal(t, map[string]string{"with console": "https://n4:2379/ui/"}, consoles)
	require.EqualValues(t, 3, got[3].Figures["leases"])
}
