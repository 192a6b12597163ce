//! In which of the two text formats of metrics a scraper is answered: OpenMetrics if it asks for that, else
//! the older text format, which all tools of Prometheus read.

/// A format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Format {
    /// <https://prometheus.io/docs/specs/om/open_metrics_spec/>
    OpenMetrics,
    /// <https://prometheus.io/docs/instrumenting/exposition_formats/#text-based-format>
    Text,
}

impl Format {
    /// What an `Accept` header asks for; weights are not compared.
    pub(crate) fn wanted(accept: Option<&str>) -> Format {
        let wants_open = accept.is_some_and(|accept| accept.contains("application/openmetrics-text"));
        if wants_open { Format::OpenMetrics } else { Format::Text }
    }

    /// For the response's header.
    pub(crate) const fn content_type(self) -> &'static str {
        match self {
            Format::OpenMetrics => "application/openmetrics-text; version=1.0.0; charset=utf-8",
            Format::Text => "text/plain; version=0.0.4; charset=utf-8",
        }
    }

    /// A text of OpenMetrics in this format.
    pub(crate) fn write(self, open_metrics: String) -> String {
        match self {
            Format::OpenMetrics => open_metrics,
            Format::Text => text(&open_metrics),
        }
    }
}

/// The older format has no units, no end mark and no type `info`, and names a counter as its samples are
/// named. In OpenMetrics a family's help comes before its type, so a help waits for the type that follows.
fn text(open_metrics: &str) -> String {
    let mut out = String::with_capacity(open_metrics.len());
    let mut help = None;
    for line in open_metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            help = rest.split_once(' ');
        } else if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|rest| rest.split_once(' '))
        {
            let (suffix, kind) = match kind {
                "counter" => ("_total", "counter"),
                "info" => ("_info", "gauge"),
                kind => ("", kind),
            };
            if let Some((_, words)) = help.take().filter(|(helped, _)| *helped == name) {
                out.extend(["# HELP ", name, suffix, " ", words, "\n"]);
            }
            out.extend(["# TYPE ", name, suffix, " ", kind, "\n"]);
        } else if !line.starts_with('#') {
            out.extend([line, "\n"]);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wanted_open_metrics_only_when_asked_for() {
        for accept in [None, Some("*/*"), Some("text/plain;version=0.0.4;q=0.5")] {
            assert_eq!(Format::wanted(accept), Format::Text);
        }
        let prometheus = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.2";
        assert_eq!(Format::wanted(Some(prometheus)), Format::OpenMetrics);
    }

    #[test]
    fn text_names_counters_and_infos_as_their_samples() {
        let open = "# HELP a_bytes Sent.\n# TYPE a_bytes counter\n# UNIT a_bytes bytes\na_bytes_total{k=\"x y\"} 3\n\
                    # HELP b What is built.\n# TYPE b info\nb_info{v=\"1\"} 1\n# TYPE c gauge\nc 2.5\n# EOF\n";
        let expected = "# HELP a_bytes_total Sent.\n# TYPE a_bytes_total counter\na_bytes_total{k=\"x y\"} 3\n\
                        # HELP b_info What is built.\n# TYPE b_info gauge\nb_info{v=\"1\"} 1\n# TYPE c gauge\nc 2.5\n";
        assert_eq!(Format::Text.write(open.to_owned()), expected);
        assert_eq!(Format::OpenMetrics.write(open.to_owned()), open);
    }
}
