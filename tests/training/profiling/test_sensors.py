import torch

from training.profiling.sensors import Reading, Watch, watched


def test_means_are_over_all_readings_and_the_temperature_is_the_highest():
    watch = Watch()
    watch.readings += [Reading(300, 50, 40), Reading(500, 100, 44), Reading(400, 90, 43)]
    assert watch.means() == {"mean_power_w": 400, "mean_utilisation_percent": 80, "highest_temperature_c": 44}


def test_without_a_gpu_there_is_nothing_to_read():
    with watched(torch.device("cpu")) as watch:
        pass
    assert watch.means() == {}
