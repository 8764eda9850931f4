package report

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/sqlbrain/sqlbrain/integration/bench/internal/result"
)

const (
	width  = 16 * vg.Centimeter
	height = 10 * vg.Centimeter
	room   = 0.45 // above the curves, for the legend, as a part of their height
)

// Plots writes the plots of f into dir and returns their file names.
func Plots(f *result.File, dir string) ([]string, error) {
	var names []string
	draw := func(name string, p *plot.Plot) error {
		if p == nil {
			return nil
		}
		names = append(names, name+".svg")
		return p.Save(width, height, filepath.Join(dir, name+".svg"))
	}
	for _, workload := range []string{"create", "update", "delete", "get", "count", "list", "put", "grant", "keepalive"} {
		p, err := byClients(f, workload)
		if err == nil {
			err = draw("throughput-"+workload, p)
		}
		if err != nil {
			return names, err
		}
	}
	middle := f.Options.Clients[len(f.Options.Clients)/2]
	for _, cell := range []string{
		fmt.Sprintf("create-%d", middle), fmt.Sprintf("update-%d", middle), fmt.Sprintf("get-%d", middle),
		fmt.Sprintf("mixed-%d", f.Options.Mixed), fmt.Sprintf("watch-latency-%d", f.Options.Watchers[0]),
	} {
		p, err := percentiles(f, cell)
		if err == nil {
			err = draw("latency-"+cell, p)
		}
		if err != nil {
			return names, err
		}
	}
	return names, nil
}

// line is one system's curve.
type line struct {
	name   string
	points plotter.XYs
	low    []float64 // of each point; nil: no spread
	high   []float64
}

// chart draws lines with their spreads; nil if there is nothing to draw. Axes that
// span more than a decade are logarithmic.
func chart(title, x, y string, lines []line) (*plot.Plot, error) {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = title, x, y
	p.Legend.Top, p.Legend.Left = true, true
	p.Add(plotter.NewGrid())
	xs, ys := []float64{}, []float64{}
	for i, l := range lines {
		if len(l.points) == 0 {
			continue
		}
		curve, marks, err := plotter.NewLinePoints(l.points)
		if err != nil {
			return nil, err
		}
		curve.Color, marks.Color, marks.Shape = plotutil.Color(i), plotutil.Color(i), plotutil.Shape(i)
		p.Add(curve, marks)
		p.Legend.Add(l.name, curve, marks)
		if l.low != nil {
			spread := struct {
				plotter.XYer
				plotter.YErrors
			}{l.points, make(plotter.YErrors, len(l.points))}
			for j, point := range l.points {
				spread.YErrors[j].Low, spread.YErrors[j].High = point.Y-l.low[j], l.high[j]-point.Y
			}
			bars, err := plotter.NewYErrorBars(spread)
			if err != nil {
				return nil, err
			}
			bars.Color = plotutil.Color(i)
			p.Add(bars)
		}
		for _, point := range l.points {
			xs, ys = append(xs, point.X), append(ys, point.Y)
		}
	}
	if len(xs) == 0 {
		return nil, nil
	}
	if slices.Min(xs) > 0 && slices.Max(xs)/slices.Min(xs) > 10 {
		p.X.Scale, p.X.Tick.Marker = plot.LogScale{}, ticks(xs)
	}
	low, high := slices.Min(ys), slices.Max(ys)
	if low > 0 && high/low > 10 {
		p.Y.Scale, p.Y.Tick.Marker = plot.LogScale{}, plot.LogTicks{Prec: -1}
		p.Y.Min, p.Y.Max = low/1.2, high*math.Pow(high/low, room)
	} else {
		p.Y.Min, p.Y.Max = 0, high*(1+room)
	}
	return p, nil
}

// ticks are the values themselves, which are few.
func ticks(values []float64) plot.ConstantTicks {
	slices.Sort(values)
	var t plot.ConstantTicks
	for _, v := range slices.Compact(values) {
		t = append(t, plot.Tick{Value: v, Label: strconv.FormatFloat(v, 'f', -1, 64)})
	}
	return t
}

func byClients(f *result.File, workload string) (*plot.Plot, error) {
	unit := "per second"
	var lines []line
	for _, s := range f.Systems {
		l := line{name: s, low: []float64{}}
		for _, c := range cells(f) {
			if c.Workload != workload || c.ValueSize != f.Options.ValueSize {
				continue
			}
			if workload == "list" {
				unit = "keys per second"
			}
			v := f.Spread(s, c.ID, throughput)
			if !math.IsNaN(v.Median) {
				l.points = append(l.points, plotter.XY{X: float64(c.Clients), Y: v.Median})
				l.low, l.high = append(l.low, v.Min), append(l.high, v.Max)
			}
		}
		lines = append(lines, l)
	}
	return chart(workload, "clients", unit, lines)
}

func percentiles(f *result.File, cell string) (*plot.Plot, error) {
	names := []string{"p50", "p90", "p99", "p99.9"}
	numbers := []func(*result.Figure) float64{
		func(g *result.Figure) float64 { return g.P50 }, func(g *result.Figure) float64 { return g.P90 },
		func(g *result.Figure) float64 { return g.P99 }, func(g *result.Figure) float64 { return g.P999 },
	}
	var lines []line
	for _, s := range f.Systems {
		l := line{name: s, low: []float64{}}
		for i, number := range numbers {
			v := f.Spread(s, cell, number)
			if !math.IsNaN(v.Median) && v.Median > 0 {
				l.points = append(l.points, plotter.XY{X: float64(i), Y: v.Median})
				l.low, l.high = append(l.low, v.Min), append(l.high, v.Max)
			}
		}
		lines = append(lines, l)
	}
	p, err := chart(cell, "", "milliseconds", lines)
	if p != nil {
		p.NominalX(names...)
	}
	return p, err
}
